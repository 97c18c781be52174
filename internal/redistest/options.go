//go:build unix

package redistest

// Option changes how a server is started.
type Option func(*options)

type options struct {
	args           []string
	user, password string
	sentinel       string // the config file of a sentinel
	bus            int    // the port where nodes of a cluster talk
	tls, tlsAuth   bool
	certs          *Certificates
}

func (o *options) tlsClients() string {
	if o.tlsAuth {
		return "yes"
	}
	return "no"
}

// Password has the server ask for one.
func Password(password string) Option {
	return func(o *options) {
		o.password = password
		o.args = append(o.args, "--requirepass", password, "--masterauth", password)
	}
}

// User has the server know a user with these rules of its access list, such as
// "~*", "+@all" or "-config". The default user is off.
func User(name, password string, rules ...string) Option {
	return func(o *options) {
		o.user, o.password = name, password
		o.args = append(o.args, "--user", "default", "off", "--user", name, "on", ">"+password)
		o.args = append(o.args, rules...)
	}
}

// TLS has the server speak TLS only, with certificates made for this test.
func TLS() Option { return func(o *options) { o.tls = true } }

// TLSClients is TLS with clients that must show a certificate.
func TLSClients() Option { return func(o *options) { o.tls, o.tlsAuth = true, true } }

// Persistent has the server keep each write before it answers, so that it has all
// of them after Kill and Restart.
func Persistent() Option { return Config("appendonly", "yes", "appendfsync", "always") }

// Config sets directives of the server's config, each followed by its one value.
func Config(pairs ...string) Option {
	return func(o *options) {
		for i := 0; i+1 < len(pairs); i += 2 {
			o.args = append(o.args, "--"+pairs[i], pairs[i+1])
		}
	}
}

package llmapp

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store/outage"
)

func init() {
	caddy.RegisterModule(new(Redis))
}

// Redis counts in Redis, where several gateways share their limits. While it cannot
// be reached they go on as OnOutage says, and hand over afterwards what was used.
// Strings may have placeholders such as `{env.REDIS_PASSWORD}`.
type Redis struct {
	// Addresses are the server's, `host:port`; with Cluster some of its nodes, with
	// Sentinel the sentinels. The port may be left out. Default: `localhost:6379`.
	Addresses []string `json:"addresses,omitempty"`
	// Cluster is set for a Redis cluster. Default: false.
	Cluster bool `json:"cluster,omitempty"`
	// Sentinel is the name of the master that sentinels watch. Default: none, for a
	// single server.
	Sentinel string `json:"sentinel,omitempty"`

	// Username and Password are the server's. Default: none.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// SentinelUsername and SentinelPassword are the sentinels'. Default: none.
	SentinelUsername string `json:"sentinel_username,omitempty"`
	SentinelPassword string `json:"sentinel_password,omitempty"`
	// DB is the number of the database; a cluster has only 0. Default: 0.
	DB int `json:"db,omitempty"`
	// TLS encrypts connections. Default: they are not encrypted.
	TLS *RedisTLS `json:"tls,omitempty"`

	// Prefix begins all keys: gateways with the same one share their counts. Default:
	// `llm:`.
	Prefix string `json:"prefix,omitempty"`
	// Timeout is how long a call waits for the server. Default: 250ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// OnOutage is what becomes of calls while the server cannot be reached: `local`
	// counts them here, starting from what had been used; `allow` admits them; `deny`
	// answers 503. Calls of limiters in mode `strict` get 503 unless Replicas is set.
	// Default: `local`.
	OnOutage string `json:"on_outage,omitempty"`
	// Replicas is how many gateways share the counts. In an outage each takes as much
	// of what is left. Default: 0, each takes all that is left.
	Replicas int `json:"replicas,omitempty"`

	// Persist is the directory where charges are kept that the server has not taken
	// yet, or `off`. Where it cannot be written to, they are in memory only, and a
	// warning says so. Default: a directory under `llm` in Caddy's data directory.
	Persist string `json:"persist,omitempty"`

	at     redisAt
	policy outage.Policy
}

// RedisTLS says how connections are encrypted.
type RedisTLS struct {
	// CA is a PEM file of the authorities that the server's certificate may be from.
	// Default: those of the system.
	CA string `json:"ca,omitempty"`
	// Cert and Key are PEM files of the certificate to show to the server. They are
	// read anew for each connection. Default: none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// ServerName is the name in the server's certificate. Default: the host of the
	// address.
	ServerName string `json:"server_name,omitempty"`
}

// redisAt is where and how to connect, with placeholders replaced.
type redisAt struct {
	Addresses                          []string
	Cluster                            bool
	Master                             string
	Username, Password                 string
	SentinelUsername, SentinelPassword string
	DB                                 int
	Encrypted                          bool
	Files                              RedisTLS
	Prefix                             string
	Timeout                            time.Duration
	Dir                                string
	CA                                 string // the hash of the file's content
	tls                                *tls.Config
}

// Defaults of the Redis store.
const (
	defaultRedisPrefix  = "llm:"
	defaultRedisTimeout = 250 * time.Millisecond
	redisPort           = "6379"
	sentinelPort        = "26379"
)

// CaddyModule returns the Caddy module information.
func (*Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "llm.stores.redis", New: func() caddy.Module { return new(Redis) }}
}

// Provision replaces placeholders and reads the certificates. It connects to nothing.
func (r *Redis) Provision(caddy.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	at := redisAt{
		Cluster: r.Cluster, DB: r.DB, Encrypted: r.TLS != nil,
		Timeout: cmp.Or(time.Duration(r.Timeout), defaultRedisTimeout),
	}
	var err error
	repl := caddy.NewReplacer()
	plain := func(field, in string) (out string) {
		out, replErr := repl.ReplaceOrErr(in, true, true)
		if replErr != nil {
			err = errors.Join(err, fmt.Errorf("%s %q: %w", field, in, replErr))
		}
		return out
	}
	// What does not look like a placeholder to Caddy may be a part of a password.
	secret := func(field, in string) (out string) {
		out, replErr := repl.ReplaceOrErr(in, true, true)
		if replErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: a placeholder in it is unknown or empty; a brace that begins none is written \\{", field))
		}
		return out
	}
	at.Master, at.Prefix = plain("sentinel", r.Sentinel), defaultRedisPrefix
	if r.Prefix != "" {
		at.Prefix = plain("prefix", r.Prefix)
	}
	at.Username, at.SentinelUsername = plain("username", r.Username), plain("sentinel_username", r.SentinelUsername)
	at.Password, at.SentinelPassword = secret("password", r.Password), secret("sentinel_password", r.SentinelPassword)
	for _, a := range r.Addresses {
		at.Addresses = append(at.Addresses, plain("address", a))
	}
	if r.TLS != nil {
		at.Files = RedisTLS{
			CA: plain("ca", r.TLS.CA), Cert: plain("cert", r.TLS.Cert), Key: plain("key", r.TLS.Key),
			ServerName: plain("server_name", r.TLS.ServerName),
		}
	}
	persist := plain("persist", r.Persist)
	if err != nil {
		return err
	}
	if err := at.complete(); err != nil {
		return err
	}
	if at.Dir, err = at.directory(persist); err != nil {
		return err
	}
	r.at = at
	return nil
}

// check is for what is wrong whatever placeholders say.
func (r *Redis) check() (err error) {
	if _, err = r.wrong(); err == nil && r.OnOutage != "" {
		r.policy, err = outage.ParsePolicy(r.OnOutage)
	}
	return err
}

// wrong returns the option that does not go with the others, or is wrong by itself.
func (r *Redis) wrong() (option string, err error) {
	switch {
	case r.Cluster && r.Sentinel != "":
		return "cluster", errors.New("cluster and sentinel exclude each other")
	case r.Cluster && r.DB != 0:
		return "db", fmt.Errorf("db %d: a cluster has only database 0", r.DB)
	case r.DB < 0:
		return "db", fmt.Errorf("db %d must not be less than zero", r.DB)
	case len(r.Addresses) > 1 && !r.Cluster && r.Sentinel == "":
		return "address", errors.New("several addresses are those of a cluster or of sentinels; add `cluster` or `sentinel <master>`")
	case r.Sentinel == "" && r.SentinelUsername != "":
		return "sentinel_username", errSentinel
	case r.Sentinel == "" && r.SentinelPassword != "":
		return "sentinel_password", errSentinel
	case r.checkTimeout() != nil:
		return "timeout", r.checkTimeout()
	case r.Replicas < 0:
		return "replicas", fmt.Errorf("replicas %d must be greater than zero", r.Replicas)
	}
	return "", nil
}

var errSentinel = errors.New("sentinel_username and sentinel_password need `sentinel <master>`")

func (r *Redis) checkTimeout() error {
	if t := time.Duration(r.Timeout); t != 0 && (t < time.Millisecond || t > time.Minute) {
		return fmt.Errorf("timeout %s is not from 1ms to 1m", t)
	}
	return nil
}

// complete fills in ports and reads the certificates.
func (at *redisAt) complete() (err error) {
	port := redisPort
	if at.Master != "" {
		port = sentinelPort
	}
	if len(at.Addresses) == 0 {
		at.Addresses = []string{"localhost"}
	}
	for i, a := range at.Addresses {
		if at.Addresses[i], err = hostPort(a, port); err != nil {
			return err
		}
	}
	if !at.Encrypted {
		return nil
	}
	at.tls, at.CA, err = at.Files.config()
	return err
}

// hostPort checks an address, and adds the port if it has none.
func hostPort(address, port string) (string, error) {
	if strings.ContainsAny(address, "/@") {
		// not quoted: such things hold passwords
		return "", errors.New("address is not host:port; scheme, user and password have no place in it")
	}
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		host, p = strings.Trim(address, "[]"), port
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("address %q is not host:port", address)
		}
	}
	if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 || host == "" {
		return "", fmt.Errorf("address %q is not host:port", address)
	}
	return net.JoinHostPort(host, p), nil
}

// directory is where charges are kept, empty for nowhere. It is the same for each
// start, and each server and prefix has its own.
func (at *redisAt) directory(persist string) (string, error) {
	switch persist {
	case persistOff:
		return "", nil
	case "":
		persist = filepath.Join(caddy.AppDataDir(), Name)
	}
	dir, err := filepath.Abs(filepath.Join(persist, "redis-"+at.counts()))
	if err != nil {
		return "", fmt.Errorf("persist %q: %w", persist, err)
	}
	return dir, nil
}

// counts names the counts that are at a server under a prefix.
func (at *redisAt) counts() string {
	addresses := slices.Clone(at.Addresses)
	slices.Sort(addresses)
	name := fmt.Sprintf("%q %t %q %d %q", addresses, at.Cluster, at.Master, at.DB, at.Prefix)
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}

// keyOf makes keys of this process from what holds passwords.
var keyOf = func() (key [32]byte) {
	_, _ = rand.Read(key[:]) // it never fails
	return key
}()

// Counts is the same for all ways to reach the same counts.
func (r *Redis) Counts() string { return "redis " + r.at.counts() }

// Key implements Store. It changes with all that connections depend on, the timeout
// and the content of the CA's file among it, and tells nothing of it. The counters of the key before hand over what is
// pending, or leave it in the directory to those of the new one.
func (r *Redis) Key() string {
	data, err := json.Marshal(r.at)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	mac := hmac.New(sha256.New, keyOf[:])
	mac.Write(data)
	return "redis " + hex.EncodeToString(mac.Sum(nil))
}

// Interface guards
var (
	_ Store             = (*Redis)(nil)
	_ starter           = (*Redis)(nil)
	_ caddy.Provisioner = (*Redis)(nil)
)

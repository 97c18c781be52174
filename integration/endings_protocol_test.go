package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/quic-go/quic-go/http3"
)

// certificate writes a certificate for 127.0.0.1 and its key into files, and returns
// a pool that trusts it.
func certificate(t testing.TB) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	der, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: srv.Certificate().Raw},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return cert, key, roots
}

func TestClientsOfEveryProtocolAreDrained(t *testing.T) {
	cert, key, roots := certificate(t)
	trust := &tls.Config{RootCAs: roots}
	only := func(set func(*http.Protocols)) *http.Transport {
		p := new(http.Protocols)
		set(p)
		return &http.Transport{Protocols: p, TLSClientConfig: trust.Clone()}
	}
	for _, protocol := range []struct {
		name, scheme string
		client       func() (client http.RoundTripper, end func())
	}{
		{"HTTP 1", "http", func() (http.RoundTripper, func()) {
			tr := only(func(p *http.Protocols) { p.SetHTTP1(true) })
			return tr, tr.CloseIdleConnections
		}},
		{"HTTP 1 over TLS", "https", func() (http.RoundTripper, func()) {
			tr := only(func(p *http.Protocols) { p.SetHTTP1(true) })
			return tr, tr.CloseIdleConnections
		}},
		{"HTTP 2 without TLS", "http", func() (http.RoundTripper, func()) {
			tr := only(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
			return tr, tr.CloseIdleConnections
		}},
		{"HTTP 2", "https", func() (http.RoundTripper, func()) {
			tr := only(func(p *http.Protocols) { p.SetHTTP2(true) })
			return tr, tr.CloseIdleConnections
		}},
		{"HTTP 3", "https", func() (http.RoundTripper, func()) {
			tr := &http3.Transport{TLSClientConfig: trust.Clone()}
			return tr, func() { tr.Close() }
		}},
	} {
		for _, ending := range []struct {
			name   string
			drain  string
			begins bool // before the client goes
			goes   bool
			rest   []step
			cost   int64
		}{
			{"stays", "1m", true, false, []step{{text: usageEvent + doneEvent}, {}}, reportedCost},
			{"goes before the header", "1m", false, true, []step{stream(event(0) + usageEvent), {}}, reportedCost},
			{"goes before the header, too slow", "50ms", false, true, nil, estimatedCost},
			{"goes in the stream", "1m", true, true, []step{{text: strings.Repeat(event(1), 1000)}, {text: usageEvent}, {}}, reportedCost},
			{"goes in the stream, too slow", "50ms", true, true, nil, estimatedCost},
		} {
			t.Run(protocol.name+"/"+ending.name, func(t *testing.T) {
				up := newLed(t)
				site := strings.TrimPrefix(drainSite(ending.drain, proxied), "{\n")
				if protocol.scheme == "https" {
					site = strings.ReplaceAll(site, "{site} {\n", "https://{addr} {\n\ttls "+cert+" "+key+"\n")
				}
				g := start(t, up.upstream, "{\n\tservers {\n\t\tprotocols h1 h2 h2c h3\n\t}\n"+site)
				client, closeAll := protocol.client()
				defer closeAll()
				c := g.begin(client, protocol.scheme, streamBody)
				within(t, "at the upstream", up.arrived)
				if ending.begins {
					up.do(t, stream(event(0)))
					c.await(t, "data:")
				}
				if ending.goes {
					c.leave()
					within(t, "left", clientGone)
				}
				up.do(t, ending.rest...)
				body := within(t, "over", c.body)
				if !ending.goes && body != event(0)+doneEvent {
					t.Errorf("got %q", body)
				}
				if ending.rest == nil {
					within(t, "broken off", up.cancelled)
				}
				g.charged(ending.cost, 1)
			})
		}
	}
}

func TestCallThatDrainsThroughAReloadIsCharged(t *testing.T) {
	up := newLed(t)
	g := start(t, up.upstream, drainSite("1m", proxied))
	c := g.begin(g.client.Transport, "http", streamBody)
	within(t, "at the upstream", up.arrived)
	up.do(t, stream(event(0)))
	c.await(t, "data:")
	c.leave()
	within(t, "left", clientGone)
	for _, drain := range []string{"50ms", "off", "1m"} {
		// those that drain already are left alone
		if err := g.tryLoad(up.upstream, drainSite(drain, proxied)); err != nil {
			t.Fatal(err)
		}
	}
	up.do(t, step{text: usageEvent}, step{})
	g.charged(reportedCost, 1)
}

func TestCallIsChargedThatOutlivesTheServer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		goes  bool
		drain string
		rest  []step
		cost  int64
	}{
		{"and reports", false, "1m", []step{{text: event(1) + usageEvent + doneEvent}, {}}, reportedCost},
		{"and breaks off", false, "1m", []step{{cut: true}}, estimatedCost},
		{"and drains", true, "1m", []step{{text: event(1) + usageEvent + doneEvent}, {}}, reportedCost},
		{"and drains too long", true, "100ms", nil, estimatedCost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newLed(t)
			g := start(t, up.upstream, drainSite(tt.drain, proxied))
			c := g.begin(g.client.Transport, "http", streamBody)
			within(t, "at the upstream", up.arrived)
			up.do(t, stream(event(0)))
			c.await(t, "data:")
			if tt.goes {
				c.leave()
				within(t, "left", clientGone)
			}
			if err := caddy.Stop(); err != nil {
				t.Fatal(err)
			}
			up.do(t, tt.rest...)
			body := within(t, "over", c.body)
			if !tt.goes && tt.cost == reportedCost && body != event(0)+event(1)+doneEvent {
				t.Errorf("the client got %q", body)
			}
			// counts live as long as the process: another run of the server tells them, at
			// a socket that the one before is not about to close
			g.admin += "2"
			if err := g.tryLoad(up.upstream, drainSite(tt.drain, proxied)); err != nil {
				t.Fatal(err)
			}
			g.charged(tt.cost, 1)
		})
	}
}

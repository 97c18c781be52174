package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// slowNames starts a name server that takes its time and says 127.0.0.1. A dial hangs as
// long, so that the call it is for is often served by a connection which has become free.
func slowNames(t *testing.T) (addr string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for {
			buf := make([]byte, 1500)
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			go func() {
				if answer, err := resolve(buf[:n]); err == nil {
					time.Sleep(rand.N(40 * time.Millisecond))
					_, _ = conn.WriteTo(answer, from)
				}
			}()
		}
	}()
	return conn.LocalAddr().String()
}

// resolve answers a question for an address.
func resolve(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, q := range m.Questions {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			})
		}
	}
	return m.Pack()
}

// proxyLine is a listener whose connections begin with a line of the PROXY protocol.
type proxyLine struct{ net.Listener }

func (l proxyLine) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &withoutLine{Conn: conn, r: bufio.NewReader(conn)}, nil
}

// withoutLine is a connection without its first line.
type withoutLine struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
}

func (c *withoutLine) Read(p []byte) (int, error) {
	var err error
	c.once.Do(func() { _, err = c.r.ReadString('\n') })
	if err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// TestDialsThatOutliveTheirCalls has connections kept and dials hang. Caddy's transport
// looks up the variables of a call at the end of its dial, when attempts, routes for
// errors and other calls have gone on for long; maps of Go end the process if somebody
// writes there.
func TestDialsThatOutliveTheirCalls(t *testing.T) {
	var calls, served atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		served.Add(1)
		sixtyTokens(w, r)
	}))
	srv.Listener = proxyLine{srv.Listener}
	srv.Start()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	proxy := "reverse_proxy provider.example:" + port + " {\n transport http {\n  resolvers " + slowNames(t) + "\n  proxy_protocol v1\n  keepalive_idle_conns_per_host 4\n }\n}\n"
	up := &upstream{addr: deadAddr(t)}
	g := start(t, up, drainSite("2s", `
		log
		log_append proxied {http.reverse_proxy.upstream.hostport}
		llm_cost {
			price * {
				input 1
				output 1
			}
		}
	`+limits+`
		llm_retry {
			attempts 3
			max_wait 5ms
			fallback spare-model {
				vars route spare
				`+proxy+`
			}
			fallback {
				vars route last
				`+proxy+`
			}
		}
		vars route {http.request.uri}
	`+proxy))
	const each, atOnce = 20, 30
	var work sync.WaitGroup
	for range atOnce {
		work.Go(func() {
			for range each {
				a, err := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`)
				if err != nil {
					t.Error(err)
				} else if a.Status != 200 && a.Status != 503 {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			}
		})
	}
	work.Wait()
	g.charged(60*served.Load(), each*atOnce)
	if want := fmt.Sprintf(`"proxied":"provider.example:%s"`, port); !strings.Contains(g.logs.text(), want) {
		t.Errorf("the log does not tell %s", want)
	}
}

package meter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/fastcgi"
)

// listening serves connections until the test has ended, and returns its address.
func listening(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { ln.Close() })
	work.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return ln.Addr().String()
}

// says reads a request to its end, writes and closes.
func says(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, answer)
	}
}

// silent reads, and says nothing.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// readFastCGI reads a request to its end, which is a record of the standard input that is
// empty, and says nothing.
func readFastCGI(conn net.Conn) {
	const stdin = 5
	var header [8]byte // version, type, two bytes of id, two of length, padding, reserved
	for {
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return
		}
		length := int64(header[4])<<8 | int64(header[5])
		if header[1] == stdin && length == 0 {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, length+int64(header[6])); err != nil {
			return
		}
	}
}

// closedAddr is an address where nobody listens any more.
func closedAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// balancing is the config of a proxy that tries its upstreams in order.
func balancing(match object, upstreams ...string) object {
	p := object{"handler": "reverse_proxy", "request_buffers": 1 << 20, "load_balancing": object{
		"selection_policy": object{"policy": "first"}, "retries": len(upstreams) - 1, "retry_match": []object{match},
	}, "health_checks": object{"passive": object{"fail_duration": int64(time.Minute), "unhealthy_status": []int{5}}}}
	var all []object
	for _, u := range upstreams {
		all = append(all, object{"dial": strings.TrimPrefix(u, "http://")})
	}
	p["upstreams"] = all
	return p
}

func TestWhatWasSentAndHadNoAnswerIsCharged(t *testing.T) {
	const soon = int64(100 * time.Millisecond)
	expected := int64(promptTokens + unknownOutput)
	with := func(p, transport object) object {
		p["transport"] = transport
		return p
	}
	timeout := object{"protocol": "http", "response_header_timeout": soon}
	posts := object{"method": []string{"POST"}}
	answers := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", document)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, map[bool]string{true: chatAnswer, false: `{"error":{"message":"x"}}`}[status == 200])
		}
	}
	cuts := says("")
	for _, tt := range []struct {
		name     string
		proxy    func(t *testing.T) object
		status   int
		missed   int64
		reported int64
	}{
		{"a timeout", func(t *testing.T) object { return with(proxy(listening(t, silent)), timeout) }, 504, 1, 0},
		{"a connection that breaks", func(t *testing.T) object { return proxy(listening(t, cuts)) }, 502, 1, 0},
		{"one that breaks in the header", func(t *testing.T) object { return proxy(listening(t, says("HTTP/1.1 20"))) }, 502, 1, 0},
		{"one that breaks after hints", func(t *testing.T) object { return proxy(listening(t, says("HTTP/1.1 103 Early Hints\r\n\r\n"))) }, 502, 1, 0},
		{"an answer", func(t *testing.T) object { return proxy(newUpstream(t, answers(200))) }, 200, 0, 21},
		{"an error", func(t *testing.T) object { return proxy(newUpstream(t, answers(500))) }, 500, 0, 0},
		{"an error that becomes another", func(t *testing.T) object {
			p := proxy(newUpstream(t, answers(500)))
			p["handle_response"] = []object{{"match": object{"status_code": []int{5}}, "routes": []object{{"handle": []object{{"handler": "error", "status_code": 504}}}}}}
			return p
		}, 504, 0, 0},

		{"a connection that is refused", func(t *testing.T) object { return proxy(closedAddr(t)) }, 502, 0, 0},
		{"no TLS", func(t *testing.T) object {
			return with(proxy(listening(t, says("HTTP/1.1 400 Bad Request\r\n\r\n"))), object{"protocol": "http", "tls": object{}})
		}, 502, 0, 0},
		{"an end in the handshake", func(t *testing.T) object {
			return with(proxy(listening(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })), object{"protocol": "http", "tls": object{}})
		}, 502, 0, 0},
		{"a handshake that takes too long", func(t *testing.T) object {
			return with(proxy(listening(t, silent)), object{"protocol": "http", "tls": object{"handshake_timeout": soon}})
		}, 504, 0, 0},
		{"no upstream", func(*testing.T) object { return object{"handler": "reverse_proxy", "upstreams": []object{}} }, 503, 0, 0},
		{"an error of the config's", func(*testing.T) object { return object{"handler": "error", "status_code": 504} }, 504, 0, 0},

		{"HTTP/2, a timeout", func(t *testing.T) object {
			return with(proxy(newCleartextHTTP2(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), object{"protocol": "http", "versions": []string{"h2c"}, "response_header_timeout": soon})
		}, 504, 1, 0},
		{"HTTP/2, a stream that is reset", func(t *testing.T) object {
			return with(proxy(newCleartextHTTP2(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				panic(http.ErrAbortHandler)
			})), object{"protocol": "http", "versions": []string{"h2c"}})
		}, 502, 1, 0},
		{"HTTP/2, an answer", func(t *testing.T) object {
			return with(proxy(newCleartextHTTP2(t, answers(200))), object{"protocol": "http", "versions": []string{"h2c"}})
		}, 200, 0, 21},
		{"HTTP/2, a connection that is refused", func(t *testing.T) object {
			return with(proxy(closedAddr(t)), object{"protocol": "http", "versions": []string{"h2c"}})
		}, 502, 0, 0},

		{"two upstreams, the first of which breaks off", func(t *testing.T) object {
			return balancing(posts, listening(t, cuts), newUpstream(t, answers(200)))
		}, 200, 1, 21},
		{"two that break off", func(t *testing.T) object { return balancing(posts, listening(t, cuts), listening(t, cuts)) }, 502, 2, 0},
		{"one that breaks off and one that refuses", func(t *testing.T) object { return balancing(posts, listening(t, cuts), closedAddr(t)) }, 502, 1, 0},
		{"one that refuses and one that breaks off", func(t *testing.T) object { return balancing(posts, closedAddr(t), listening(t, cuts)) }, 502, 1, 0},
		{"one that answers with an error and one that refuses", func(t *testing.T) object {
			return balancing(object{"expression": "{http.reverse_proxy.status_code} == 500"}, newUpstream(t, answers(500)), closedAddr(t))
		}, 502, 0, 0},
		{"two that answer with errors", func(t *testing.T) object {
			return balancing(object{"expression": "{http.reverse_proxy.status_code} == 500"}, newUpstream(t, answers(500)), newUpstream(t, answers(500)))
		}, 500, 0, 0},

		{"FastCGI that breaks off", func(t *testing.T) object {
			return with(proxy(listening(t, readFastCGI)), object{"protocol": "fastcgi"})
		}, 502, 1, 0},
		{"FastCGI that takes too long", func(t *testing.T) object {
			return with(proxy(listening(t, silent)), object{"protocol": "fastcgi", "read_timeout": soon})
		}, 504, 1, 0},
		{"FastCGI that is refused", func(t *testing.T) object { return with(proxy(closedAddr(t)), object{"protocol": "fastcgi"}) }, 502, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			g := newGateway(t, []object{use(t, l), tt.proxy(t)}, nil)
			res := g.post(t.Context(), t, chatPath, plainBody)
			if readAll(t, res); res.StatusCode != tt.status {
				t.Errorf("got %d, want %d", res.StatusCode, tt.status)
			}
			o := l.wait(t)
			all := o.All()
			if got, want := all.Total(), tt.missed*expected+tt.reported; got != want {
				t.Errorf("charged %d tokens, want %d", got, want)
			}
			want := SourceNone
			switch {
			case tt.missed > 0:
				want = SourceEstimated
			case tt.reported > 0:
				want = SourceReported
			}
			if o.Source != want {
				t.Errorf("figures are %s, want %s", o.Source, want)
			}
			nothingHeld(t, m)
		})
	}
}

// newCleartextHTTP2 starts a provider that speaks HTTP/2 without TLS.
func newCleartextHTTP2(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestClientsNeedNotBeToldToGoOn(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if e := r.Header.Get("Expect"); e != "" {
			t.Errorf("the upstream is expected to say %q", e)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, chatAnswer)
	})
	l := newLimiter(New(), "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	if res := g.post(t.Context(), t, chatPath, plainBody, "Expect", "100-continue"); readAll(t, res) != chatAnswer {
		t.Errorf("got %d", res.StatusCode)
	}
}

func TestRequestsThatHadNoAnswer(t *testing.T) {
	boom := caddyhttp.Error(http.StatusBadGateway, errors.New("boom"))
	const (
		dial = iota
		write
		part
		first
	)
	for _, tt := range []struct {
		name   string
		events []int
		ending Ending
		err    error
		want   int
	}{
		{"nothing", nil, Answered, nil, 0},
		{"a dial", []int{dial}, Failed, boom, 0},
		{"a part", []int{dial, part}, Failed, boom, 0},
		{"all of it", []int{dial, write}, Failed, boom, 1},
		{"a client that left before", []int{dial}, Left, boom, 0},
		{"one that left afterwards", []int{dial, write}, Left, boom, 0},
		{"one that left the second", []int{dial, write, dial, write}, Left, boom, 1},
		{"one that left before the second", []int{dial, write, dial}, Left, boom, 1},
		{"an answer", []int{dial, write, first}, Answered, nil, 0},
		{"an answer before all was written", []int{dial, first, write}, Answered, nil, 0},
		{"an answer to a part", []int{dial, part, first}, Answered, nil, 0},
		{"the second's answer", []int{dial, write, dial, write, first}, Answered, nil, 1},
		{"an answer that broke off", []int{dial, write, first}, CutOff, boom, 1},
		{"an answer that broke off in its header", []int{dial, write, first}, Failed, boom, 1},
		{"a kept connection", []int{dial, write}, Failed, caddyhttp.Error(502, errors.New("http: server closed idle connection")), 0},
		{"one that could not be written to", []int{dial, write}, Failed, caddyhttp.Error(502, fmt.Errorf("write error: %w", &net.OpError{Op: "write", Err: syscall.EPIPE})), 0},
		{"a reset", []int{dial, write}, Failed, caddyhttp.Error(502, &net.OpError{Op: "read", Err: syscall.ECONNRESET}), 1},
		{"a stream that was refused", []int{dial, write}, Failed, caddyhttp.Error(502, errors.New("http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM] after Request.Body was written")), 0},
		{"the second, a kept connection", []int{dial, write, dial, write}, Failed, caddyhttp.Error(502, errors.New("http: server closed idle connection")), 1},
		{"no transport that tells", nil, Failed, boom, 0},
		{"a dial of another's", nil, Failed, caddyhttp.Error(502, reverseproxy.NewDialError(errors.New("refused"))), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRequest(http.MethodPost, chatPath, plainBody)
			p := New().Call(r).pass(r.Context(), r)
			trace := httptrace.ContextClientTrace(p.Request().Context())
			for _, e := range tt.events {
				switch e {
				case dial:
					trace.GetConn("example.com:443")
				case write:
					trace.WroteRequest(httptrace.WroteRequestInfo{})
				case part:
					trace.WroteRequest(httptrace.WroteRequestInfo{Err: io.ErrClosedPipe})
				case first:
					trace.GotFirstResponseByte()
				}
			}
			if got := p.Unanswered(tt.ending, tt.err); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestATraceFurtherOutIsTold(t *testing.T) {
	w, r := httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody)
	told := 0
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { told++ }, PutIdleConn: func(error) { told++ },
	}))
	c := New().Call(r)
	outer := c.pass(r.Context(), r)
	between := outer.Request().WithContext(context.WithValue(outer.Request().Context(), passageTestKey{}, "x"))
	inner := c.passApart(between.Context(), w, between)
	trace := httptrace.ContextClientTrace(inner.Request().Context())
	trace.GetConn("example.com:443")
	trace.WroteRequest(httptrace.WroteRequestInfo{})
	trace.PutIdleConn(nil)
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
	if in, out := inner.Unanswered(Failed, boomed), outer.Unanswered(Failed, boomed); in != 1 || out != 0 {
		t.Errorf("%d inside and %d outside, want 1 and 0", in, out)
	}
}

var boomed = caddyhttp.Error(http.StatusBadGateway, io.EOF)

// What a transport has left behind may tell something at any time.
func TestATransportMayTellLater(t *testing.T) {
	w, r := httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody)
	c := New().Call(r)
	first := c.passApart(r.Context(), w, r)
	trace := httptrace.ContextClientTrace(first.Request().Context())
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			trace.GetConn("example.com:443")
			trace.WroteRequest(httptrace.WroteRequestInfo{})
			_ = httptrace.ContextClientTrace(first.Request().Context())
		})
	}
	_ = first.Unanswered(Failed, boomed)
	second := c.passApart(r.Context(), w, r)
	_ = httptrace.ContextClientTrace(second.Request().Context())
	work.Wait()
	if n := second.Unanswered(Answered, nil); n != 0 {
		t.Errorf("the second has %d of the first", n)
	}
}

// passageTestKey is of a context between two passages.
type passageTestKey struct{}

package meter

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A client that leaves pays for what an upstream may be at work for, and for nothing else.
func TestClientThatLeavesPaysForWhatWasSent(t *testing.T) {
	const expected = int64(promptTokens + unknownOutput)
	signalling := func(met chan<- struct{}, serve func(net.Conn)) func(net.Conn) {
		return func(c net.Conn) {
			serve(c)
			select {
			case met <- struct{}{}:
			default:
			}
		}
	}
	hello := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) } // of a handshake
	trying := func(p object) object {
		p["load_balancing"] = object{
			"selection_policy": object{"policy": "first"}, "try_duration": int64(200 * time.Millisecond), "try_interval": int64(time.Millisecond),
			"retry_match": []object{{"method": []string{"POST"}}},
		}
		p["health_checks"] = object{"passive": object{"fail_duration": int64(time.Hour)}}
		return p
	}
	for _, tt := range []struct {
		name  string
		proxy func(t *testing.T, met chan<- struct{}) object
		soon  bool // before the proxy is asked
		want  int64
	}{
		{"during a handshake", func(t *testing.T, met chan<- struct{}) object {
			p := proxy(listening(t, func(c net.Conn) { signalling(met, hello)(c); silent(c) }))
			p["transport"] = object{"protocol": "http", "tls": object{"handshake_timeout": int64(time.Second)}} // which lingers
			return p
		}, false, 0},
		{"before any connection", func(t *testing.T, _ chan<- struct{}) object { return trying(proxy(closedAddr(t))) }, true, 0},
		{"before any connection of FastCGI", func(t *testing.T, _ chan<- struct{}) object {
			p := proxy(listening(t, silent))
			p["transport"] = object{"protocol": "fastcgi"}
			return p
		}, true, 0},
		{"without an upstream", func(*testing.T, chan<- struct{}) object {
			return trying(object{"handler": "reverse_proxy", "upstreams": []object{}})
		}, true, 0},
		{"after a connection that broke", func(t *testing.T, met chan<- struct{}) object {
			return trying(balancing(object{}, listening(t, signalling(met, says(""))), closedAddr(t)))
		}, false, expected},
		{"before the answer", func(t *testing.T, met chan<- struct{}) object {
			return proxy(listening(t, func(c net.Conn) { signalling(met, says(""))(&deaf{c}); silent(c) }))
		}, false, expected},
	} {
		for _, drain := range []time.Duration{-1, 20 * time.Millisecond} {
			t.Run(tt.name, func(t *testing.T) {
				met := make(chan struct{}, 1)
				m := New()
				m.SetOptions(Options{Drain: drain})
				l := newLimiter(m, "l")
				here := object{"handler": "vars"}
				if tt.soon {
					here = use(t, middleware(func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
						met <- struct{}{}
						<-r.Context().Done()
						return next.ServeHTTP(w, r)
					}))
				}
				g := newGateway(t, []object{use(t, l), here, tt.proxy(t, met)}, nil)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+chatPath, strings.NewReader(plainBody))
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if res, err := new(http.Transport).RoundTrip(r); err == nil {
						res.Body.Close()
					}
				}()
				<-met
				leave()
				<-done
				o := l.wait(t)
				if all := o.All(); all.Total() != tt.want {
					t.Errorf("charged %d tokens, want %d", all.Total(), tt.want)
				}
			})
		}
	}
}

// deaf is a connection that cannot be answered on.
type deaf struct{ net.Conn }

func (*deaf) Write(p []byte) (int, error) { return len(p), nil }

// Each try has books of its own: the answer to one is none to another.
func TestTriesAreToldApart(t *testing.T) {
	const key = answerCame
	for _, tt := range []struct {
		name string
		run  func(r *http.Request, trace *httptrace.ClientTrace)
		want int
	}{
		{"an answer to a part, after none to the whole", func(r *http.Request, trace *httptrace.ClientTrace) {
			trace.GetConn("")
			trace.WroteRequest(httptrace.WroteRequestInfo{})
			trace.GetConn("")
			trace.GotFirstResponseByte()
			setPlaceholder(r, key, "1ms")
		}, 1},
		{"a header that broke off, and an answer", func(r *http.Request, trace *httptrace.ClientTrace) {
			trace.GetConn("")
			trace.WroteRequest(httptrace.WroteRequestInfo{})
			trace.GotFirstResponseByte()
			trace.GetConn("")
			trace.WroteRequest(httptrace.WroteRequestInfo{})
			trace.GotFirstResponseByte()
			setPlaceholder(r, key, "1ms")
		}, 1},
		{"two answers", func(r *http.Request, trace *httptrace.ClientTrace) {
			for _, latency := range []string{"1ms", "2ms"} {
				trace.GetConn("")
				trace.WroteRequest(httptrace.WroteRequestInfo{})
				trace.GotFirstResponseByte()
				setPlaceholder(r, key, latency)
			}
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRequest(http.MethodPost, chatPath, plainBody)
			p := New().Call(r).pass(r.Context(), r)
			tt.run(p.Request(), httptrace.ContextClientTrace(p.Request().Context()))
			if got := p.Unanswered(Answered, nil); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}

	// what another proxy has said before is nothing that this one says
	r := newRequest(http.MethodPost, chatPath, plainBody)
	p := New().Call(r).pass(r.Context(), r)
	trace := httptrace.ContextClientTrace(p.Request().Context())
	trace.GetConn("")
	trace.WroteRequest(httptrace.WroteRequestInfo{})
	trace.GotFirstResponseByte()
	setPlaceholder(p.Request(), key, "1ms")
	trace.GetConn("")
	trace.WroteRequest(httptrace.WroteRequestInfo{})
	trace.GotFirstResponseByte()
	if got := p.Unanswered(Failed, boomed); got != 1 {
		t.Errorf("a header that broke off behind another proxy: got %d, want 1", got)
	}
}

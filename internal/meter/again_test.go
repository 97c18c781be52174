package meter

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// oldServer is an upstream that does not know stream_options. It keeps what it gets.
type oldServer struct {
	status   int
	message  string
	encoding string
	stubborn bool // refuses the plain request too
	seen     []seen
}

type seen struct {
	body, url, host, method, accept, extra string
	length                                 int64
}

func (s *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.seen = append(s.seen, seen{
		body: string(b), url: r.URL.String(), host: r.Host, method: r.Method,
		accept: strings.Join(r.Header["Accept-Encoding"], ","), extra: strings.Join(r.Header["X-Extra"], ","), length: r.ContentLength,
	})
	if s.stubborn || strings.Contains(string(b), "stream_options") {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Refused", "yes")
		if s.encoding != "" {
			w.Header().Set("Content-Encoding", s.encoding)
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.message)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, event+eventEnd+eventDone)
}

func TestStreamIsAskedAgainWithoutUsage(t *testing.T) {
	gzipped := compress(t, unknownOption)
	tests := []struct {
		name     string
		upstream oldServer
		calls    int    // that the upstream gets
		status   int    // that the client gets
		body     string // that the client gets
		remember bool
	}{
		{name: "after 400", upstream: oldServer{status: 400, message: unknownOption}, calls: 2, status: 200, remember: true},
		{name: "after 422", upstream: oldServer{status: 422, message: `{"detail":[{"loc":["body","include_usage"],"type":"extra_forbidden"}]}`}, calls: 2, status: 200, remember: true},
		{name: "after a compressed 400", upstream: oldServer{status: 400, message: gzipped, encoding: "gzip"}, calls: 2, status: 200, remember: true},
		{name: "but not after 403", upstream: oldServer{status: 403, message: unknownOption}, calls: 1, status: 403, body: unknownOption},
		{name: "but not after 500", upstream: oldServer{status: 500, message: unknownOption}, calls: 1, status: 500, body: unknownOption},
		{name: "but not after 400 for another reason", upstream: oldServer{status: 400, message: "no such model"}, calls: 1, status: 400, body: "no such model"},
		{name: "but not after 400 without a word", upstream: oldServer{status: 400}, calls: 1, status: 400},
		{name: "but not after 400 in a broken encoding", upstream: oldServer{status: 400, message: gzipped[:20], encoding: "gzip"}, calls: 1, status: 400, body: gzipped[:20]},
		{
			name:     "but not after a long 400",
			upstream: oldServer{status: 400, message: strings.Repeat("x", maxHeldError) + unknownOption}, calls: 1, status: 400,
			body: strings.Repeat("x", maxHeldError) + unknownOption,
		},
		{
			name:     "once, whatever comes then, and nothing is learned",
			upstream: oldServer{status: 400, message: unknownOption, stubborn: true}, calls: 2, status: 400, body: unknownOption,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			g := newGateway(t, []object{use(t, l), proxy(newUpstream(t, test.upstream.ServeHTTP))}, nil)
			for n := range 2 {
				test.upstream.seen = nil
				res := g.post(t.Context(), t, chatPath, streamBody)
				got := readAll(t, res)
				want := test.body
				if test.status == 200 {
					want = event + eventEnd + eventDone
				}
				if res.StatusCode != test.status || got != want {
					t.Errorf("call %d: got %d %.80q", n, res.StatusCode, got)
				}
				if (res.Header.Get("X-Refused") != "") != (test.status != 200) || len(res.Header["Content-Type"]) != 1 {
					t.Errorf("call %d: header %v", n, res.Header)
				}
				if res.Header.Get("X-Left") != "1" || l.headers != n+1 {
					t.Errorf("call %d: limits told %d times, %v", n, l.headers, res.Header)
				}
				calls := test.calls
				if n > 0 && test.remember {
					calls = 1
				}
				if len(test.upstream.seen) != calls {
					t.Errorf("call %d: the upstream got %d calls", n, len(test.upstream.seen))
				}
				if last := test.upstream.seen[calls-1]; test.calls == 2 && last.body != streamBody {
					t.Errorf("call %d: the upstream got %q in the end", n, last.body)
				}
				l.wait(t)
				receive(t, g.log)
				nothingHeld(t, m)
			}
		})
	}
}

func TestSecondRunIsLikeTheFirst(t *testing.T) {
	body := `{"model":"gpt-5","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	for _, arrangement := range []string{"asked first", "asked further in", "asked further in, body known before"} {
		for _, accept := range []string{"gzip, br", "identity;q=1", "absent"} {
			t.Run(arrangement+", accepting "+accept, func(t *testing.T) {
				m := New()
				outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
				outer.counts = arrangement != "asked first"
				inner.cap = 77
				upstream := &oldServer{status: 400, message: unknownOption}
				// what a route does to a request
				touch := middleware(func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
					r.Header.Add("X-Extra", "1")
					r.URL.Path, r.URL.RawQuery = "/prefix"+r.URL.Path, r.URL.RawQuery+"&more=1"
					r.RequestURI = r.URL.RequestURI()
					r.Host = "h." + r.Host
					w.Header().Add("X-Touched", "1")
					return next.ServeHTTP(w, r)
				})
				know := middleware(func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
					if arrangement == "asked further in, body known before" {
						_, release, err := m.RequestModel(r)
						if err != nil {
							return err
						}
						defer release()
					}
					return next.ServeHTTP(w, r)
				})
				grouped := object{"handler": "subroute", "routes": []object{
					{"group": "one", "handle": []object{use(t, inner), proxy(newUpstream(t, upstream.ServeHTTP))}},
					{"group": "one", "handle": []object{{"handler": "static_response", "status_code": 418}}},
				}}
				g := newGateway(t, []object{use(t, know), use(t, outer), use(t, touch), grouped}, nil)

				r, err := http.NewRequest(http.MethodPost, g.url+chatPath+"?a=1", strings.NewReader(compress(t, body)))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "host.example"
				r.Header.Set("Content-Encoding", "gzip")
				want := seen{
					body: `{"max_completion_tokens":77,` + body[1:], url: "/prefix" + chatPath + "?a=1&more=1",
					host: "h.host.example", method: http.MethodPost, accept: accept, extra: "1",
				}
				r.Header.Set("Accept-Encoding", accept)
				if accept == "absent" {
					r.Header.Del("Accept-Encoding")
					want.accept = "gzip" // reverse_proxy's own
				}
				want.length = int64(len(want.body))
				tr := &http.Transport{DisableCompression: true}
				defer tr.CloseIdleConnections()
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if got := readAll(t, res); res.StatusCode != 200 || got != event+eventEnd+eventDone {
					t.Errorf("got %d %q", res.StatusCode, got)
				}
				if got := res.Header["X-Touched"]; len(got) != 1 {
					t.Errorf("X-Touched: %v", got)
				}
				if len(upstream.seen) != 2 {
					t.Fatalf("the upstream got %d calls", len(upstream.seen))
				}
				if got := upstream.seen[1]; got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				if first := upstream.seen[0]; first.accept != "identity" || !strings.Contains(first.body, "stream_options") {
					t.Errorf("first %+v", first)
				}
				for _, l := range []*limiter{outer, inner} {
					if o := l.wait(t); o.Status != 200 {
						t.Errorf("%s: %+v", l.name, o)
					}
					l.once(t)
				}
				receive(t, g.log)
				nothingHeld(t, m)
			})
		}
	}
}

func TestHeldAnswerHasItsOwnHeader(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Other", "1")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "no")
		w.Header().Set("X-Sum", "2")
		w.Header().Set(http.TrailerPrefix+"X-Late", "3")
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	res := g.post(t.Context(), t, chatPath, streamBody)
	if got := readAll(t, res); res.StatusCode != 400 || got != "no" {
		t.Errorf("got %d %q", res.StatusCode, got)
	}
	if res.Header.Get("X-Sum") != "" || res.Header.Get("X-Other") != "1" || res.Header.Get("X-Left") != "1" {
		t.Errorf("header %v", res.Header)
	}
	if res.Trailer.Get("X-Sum") != "2" || res.Trailer.Get("X-Late") != "3" {
		t.Errorf("trailer %v", res.Trailer)
	}
}

func TestHeldAnswerIsLostWithAPanic(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	w := httptest.NewRecorder()
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		_ = answer(400, "application/json", "half an")(w, r)
		panic(http.ErrAbortHandler)
	})
	func() {
		defer func() { _ = recover() }()
		_ = serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l)
	}()
	if w.Body.Len() != 0 {
		t.Errorf("the client got %q", w.Body)
	}
	if o := l.wait(t); o.Source != SourceNone {
		t.Errorf("got %+v", o)
	}
	nothingHeld(t, m)
}

func TestErrorBehindAHeldAnswerIsReturned(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	w := httptest.NewRecorder()
	runs := 0
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		runs++
		_ = answer(400, "application/json", unknownOption)(w, r)
		return io.ErrNoProgress
	})
	err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l)
	if !errors.Is(err, io.ErrNoProgress) || runs != 1 || w.Code != 400 || w.Body.String() != unknownOption {
		t.Errorf("error %v, %d runs, got %d %q", err, runs, w.Code, w.Body)
	}
}

func TestUsageIsNotAskedFor(t *testing.T) {
	asked := strings.Replace(streamBody, "{", `{"stream_options":{"include_usage":true},`, 1)
	tests := []struct {
		name, path, body string
		headers          []string
		options          Options
	}{
		{name: "where nothing streams", path: chatPath, body: plainBody},
		{name: "where the client asks", path: chatPath, body: asked},
		{name: "where a signature covers the body", path: chatPath, body: streamBody, headers: []string{"Authorization", "AWS4-HMAC-SHA256 x"}},
		{name: "where the option says so", path: chatPath, body: streamBody, options: Options{LeaveUsage: true}},
		{name: "of another API", path: "/v1/messages", body: streamBody},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			m.SetOptions(test.options)
			l := newLimiter(m, "l")
			r := newRequest(http.MethodPost, test.path, test.body, append([]string{"Accept-Encoding", "br"}, test.headers...)...)
			before := r.Header.Clone()
			before.Set("Content-Length", fmt.Sprint(len(test.body)))
			w := httptest.NewRecorder()
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				b, _ := io.ReadAll(r.Body)
				if string(b) != test.body || !maps.EqualFunc(r.Header, before, func(a, b []string) bool { return a[0] == b[0] }) {
					t.Errorf("%q goes on with %v", b, r.Header)
				}
				// the usage chunk is the client's where it asked
				return answer(200, "text/event-stream", event, eventUsage, eventDone)(w, r)
			})
			if err := serve(w, r, next, l); err != nil {
				t.Fatal(err)
			}
			if w.Body.String() != event+eventUsage+eventDone {
				t.Errorf("the client got %q", w.Body)
			}
		})
	}
}

func TestRefusingUpstreamIsForgottenAfterAnHour(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var f refusing
	k := refuser{"host", "model"}
	f.add(k, now)
	for _, test := range []struct {
		after time.Duration
		key   refuser
		want  bool
	}{
		{0, k, true},
		{refusingFor - 1, k, true},
		{refusingFor, k, false},
		{0, refuser{"host", "other"}, false},
		{0, refuser{"other", "model"}, false},
	} {
		if got := f.has(test.key, now.Add(test.after)); got != test.want {
			t.Errorf("%v after %v: got %t", test.key, test.after, got)
		}
	}
}

func TestRefusingUpstreamsAreBounded(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var f refusing
	for i := range 3*refusingMax + 1 {
		f.add(refuser{"host", fmt.Sprint(i)}, now)
	}
	if n := len(f.until); n > refusingMax {
		t.Errorf("%d routes are kept", n)
	}
	if !f.has(refuser{"host", fmt.Sprint(3 * refusingMax)}, now) {
		t.Error("the last one is not known")
	}
	long := refuser{"host", strings.Repeat("m", modelMax+1)}
	f.add(long, now)
	f.add(refuser{strings.Repeat("h", hostMax+1), "m"}, now)
	if len(f.until) > refusingMax || f.has(long, now) {
		t.Error("a long name is kept")
	}
}

func TestClientGoesWhileALongErrorIsLetGo(t *testing.T) {
	m := New()
	m.SetOptions(Options{Drain: -1})
	l := newLimiter(m, "l")
	w := &brokenWriter{httptest.NewRecorder(), 10}
	next := handler(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusBadRequest)
		if _, err := w.Write(make([]byte, maxHeldError)); err != nil {
			t.Errorf("got error %v", err)
		}
		if _, err := io.WriteString(w, "x"); !errors.Is(err, errHungUp) {
			t.Errorf("got error %v", err)
		}
		return nil
	})
	if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l); err != nil {
		t.Fatal(err)
	}
	l.wait(t)
	l.once(t)
	nothingHeld(t, m)
}

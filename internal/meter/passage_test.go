package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// placeholder is what a request's placeholders say.
func placeholder(r *http.Request, key string) string {
	s, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString(key)
	return s
}

func setPlaceholder(r *http.Request, key, value string) {
	r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Set(key, value)
}

// lookUp reads what a transport may look up of a request in a dial that nobody waits for
// any more, until stop is closed.
func lookUp(r *http.Request, stop <-chan struct{}, work *sync.WaitGroup) {
	ctx := r.Context()
	repeat(stop, work, func() {
		_ = caddyhttp.GetVar(ctx, "x")
		_ = caddyhttp.GetVar(ctx, VarCost)
		_ = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll("{http.vars.x} {http.request.header.X-Extra} {http.request.uri} {unknown}", "")
		_ = fmt.Sprint(r.Trailer, r.ContentLength, ctx.Err())
	})
}

// repeat does something beside the test until stop is closed. It returns when it was done
// once.
func repeat(stop <-chan struct{}, work *sync.WaitGroup, do func()) {
	begun := make(chan struct{})
	work.Go(func() {
		for first := true; ; first = false {
			do()
			if first {
				close(begun)
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
			}
		}
	})
	<-begun
}

func TestWhatHandlersLeaveBehindMayLookAtTheRequest(t *testing.T) {
	m := New()
	pricer := new(tariff)
	stop := make(chan struct{})
	var work sync.WaitGroup
	upstream := &oldServer{status: 400, message: unknownOption}
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		lookUp(r, stop, &work)
		rec := httptest.NewRecorder()
		upstream.ServeHTTP(rec, r)
		return answer(rec.Code, rec.Header().Get("Content-Type"), rec.Body.String())(w, r)
	})
	// what handlers further out do, and routes for errors
	outer := func(w http.ResponseWriter, r *http.Request) {
		m.Call(r).Price(pricer)
		r.Header.Set("X-Extra", "1")
		l := newLimiter(m, "l")
		if err := serve(w, r, next, newLimiter(m, "k"), l); err != nil {
			t.Error(err)
		}
		l.wait(t)
		caddyhttp.SetVar(r.Context(), "x", 2)
		setPlaceholder(r, "x", "2")
		r.Header.Set("X-Extra", "2")
		r.URL.Path, r.ContentLength = "/", 0
		*r = *r.WithContext(r.Context())
	}
	for range 5 {
		m.refusing.until = nil
		outer(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, streamBody))
	}
	close(stop)
	work.Wait()
	nothingHeld(t, m)
}

// leaveBehind is an upstream that answers with a status. What it leaves at work reads the
// request's variables until stop is closed.
func leaveBehind(stop <-chan struct{}, work *sync.WaitGroup, status int, seen *http.Request) caddyhttp.Handler {
	return handler(func(w http.ResponseWriter, in *http.Request) error {
		*seen = *in
		ctx, header := in.Context(), in.Header
		caddyhttp.SetVar(ctx, "reverse_proxy.dial_info", status)
		repeat(stop, work, func() {
			vars := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
			_, _, _ = vars["proxy_protocol_info"], ctx.Err(), header.Get("X-Extra")
			_ = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll("{http.vars.x} {http.request.uri}", "")
		})
		return answer(status, document, chatAnswer)(w, in)
	})
}

// Where there is one passage alone, the handlers behind get the request that came. What they
// leave at work reads its variables while the call ends.
func TestNothingIsWrittenWhereTheOnlyPassageMayBeLookedAt(t *testing.T) {
	m := New()
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 3 {
		r := newRequest(http.MethodPost, chatPath, plainBody)
		vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
		m.Call(r).Price(new(tariff))
		l := newLimiter(m, "l")
		var seen http.Request
		if err := serve(httptest.NewRecorder(), r, leaveBehind(stop, &work, 200, &seen), newLimiter(m, "outer"), l); err != nil {
			t.Fatal(err)
		}
		l.wait(t)
		if seen.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)["reverse_proxy.dial_info"] != vars["reverse_proxy.dial_info"] {
			t.Error("variables are not those of the request that came")
		}
		if Var(r, VarCostStatus) != string(CostCalculated) || Var(r, VarCost) == "" {
			t.Errorf("cost %q, %q", Var(r, VarCost), Var(r, VarCostStatus))
		}
	}
	close(stop)
	work.Wait()
	nothingHeld(t, m)
}

// A call whose body nobody reads passes once where nobody asks for usage, and else may have to
// pass again.
func TestUnaskedCallPassesOnce(t *testing.T) {
	for _, unasked := range []bool{true, false} {
		m := New()
		l := newLimiter(m, "l")
		l.counts = true // requests alone
		r := newRequest(http.MethodPost, chatPath, streamBody)
		if unasked {
			m.Call(r).Unasked()
		}
		next := handler(func(w http.ResponseWriter, in *http.Request) error {
			if (in == r) != unasked {
				t.Errorf("unasked %t: the handlers behind get the request that came: %t", unasked, in == r)
			}
			return answer(200, sse, event+eventEnd+eventDone)(w, in)
		})
		if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
			t.Fatal(err)
		}
		l.wait(t)
		nothingHeld(t, m)
	}
}

// A server with routes for errors may make another call of the request, while what the first
// has left at work looks at it.
func TestRoutesForErrorsWriteNothingThatIsLookedAt(t *testing.T) {
	m := New()
	stop := make(chan struct{})
	var work sync.WaitGroup
	r := newRequest(http.MethodPost, chatPath, plainBody)
	server := &caddyhttp.Server{Errors: &caddyhttp.HTTPErrorConfig{Routes: make(caddyhttp.RouteList, 1)}}
	*r = *r.WithContext(context.WithValue(r.Context(), caddyhttp.ServerCtxKey, server))
	for pass, status := range []int{502, 503, 200} { // all but the first are in those routes
		m.Call(r).Price(new(tariff))
		l := newLimiter(m, fmt.Sprint(pass))
		if err := serve(httptest.NewRecorder(), r, leaveBehind(stop, &work, status, new(http.Request)), l); err != nil {
			t.Fatal(err)
		}
		l.wait(t)
		if got := caddyhttp.GetVar(r.Context(), "reverse_proxy.dial_info"); got != status {
			t.Errorf("pass %d: outside, the variable is %v", pass, got)
		}
	}
	close(stop)
	work.Wait()
	nothingHeld(t, m)
}

func TestPassageIsAsIfTheRequestHadBeenHandedOn(t *testing.T) {
	t.Run("the only one", func(t *testing.T) { asIfHandedOn(t, plainBody, false) })
	t.Run("apart", func(t *testing.T) { asIfHandedOn(t, streamBody, true) })
}

func asIfHandedOn(t *testing.T, body string, isApart bool) {
	t.Helper()
	type key struct{}
	m := New()
	l := newLimiter(m, "l")
	r := newRequest(http.MethodPost, chatPath+"?a=1", body, "X-Extra", "a")
	*r = *r.WithContext(context.WithValue(r.Context(), key{}, "v"))
	caddyhttp.SetVar(r.Context(), "before", "1")
	caddyhttp.SetVar(r.Context(), "gone", "1")
	setPlaceholder(r, "outside", "1")
	header, vars := r.Header, r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)

	next := handler(func(w http.ResponseWriter, in *http.Request) error {
		for name, want := range map[string]string{
			"http.vars.before": "1", "outside": "1", "http.request.uri": chatPath + "?a=1", "http.request.header.X-Extra": "a",
			"http.response.header.X-Answer": "", "http.request.host": "example.com",
		} {
			if got := placeholder(in, name); got != want {
				t.Errorf("inside, {%s} is %q, want %q", name, got, want)
			}
		}
		if in.Context().Value(key{}) != "v" {
			t.Error("a value of the context is missing")
		}
		caddyhttp.SetVar(in.Context(), "inside", "2")
		caddyhttp.SetVar(in.Context(), "gone", nil)
		setPlaceholder(in, "http.auth.user.id", "u")
		in.URL.Path, in.URL.RawQuery = "/p", ""
		in.Host, in.Method, in.RequestURI = "h", http.MethodPut, "/p"
		in.Header.Set("X-Extra", "b")
		in.Header.Del("Content-Type")
		w.Header().Set("X-Answer", "yes")
		for name, want := range map[string]string{
			"http.vars.inside": "2", "http.request.uri": "/p", "http.request.header.X-Extra": "b",
			"http.response.header.X-Answer": "yes", "http.request.host": "h", "http.request.method": "PUT", "unknown": "",
		} {
			if name == "http.response.header.X-Answer" && !isApart {
				continue // Caddy's own placeholder, which these tests bind to no answer
			}
			if got := placeholder(in, name); got != want {
				t.Errorf("inside, {%s} is %q in the end, want %q", name, got, want)
			}
		}
		if got := vars["inside"]; isApart && got != nil {
			t.Errorf("outside, the variable is %v before the header", got)
		}
		w.WriteHeader(http.StatusOK)
		if got := vars["inside"]; got != "2" {
			t.Errorf("outside, the variable is %v once the header goes out", got)
		}
		_, err := io.WriteString(w, chatAnswer)
		return err
	})
	if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
		t.Fatal(err)
	}
	if r.URL.RequestURI() != "/p" || r.Host != "h" || r.Method != http.MethodPut || r.RequestURI != "/p" {
		t.Errorf("the request is %s %s %s", r.Method, r.Host, r.URL)
	}
	if header.Get("X-Extra") != "b" || header.Get("Content-Type") != "" {
		t.Errorf("its header is %v", header)
	}
	if vars["before"] != "1" || vars["inside"] != "2" || vars["gone"] != nil {
		t.Errorf("variables are %v", vars)
	}
	for name, want := range map[string]string{"outside": "1", "http.auth.user.id": "u", "http.vars.inside": "2", "unknown": ""} {
		if got := placeholder(r, name); got != want {
			t.Errorf("outside, {%s} is %q, want %q", name, got, want)
		}
	}
}

func TestLastProxyIsTheOneThatPlaceholdersTellOf(t *testing.T) {
	const address, status = "http.reverse_proxy.upstream.address", "http.reverse_proxy.status_code"
	for _, earlier := range []string{"", "auth:1"} {
		m := New()
		r := newRequest(http.MethodPost, chatPath, plainBody)
		if earlier != "" { // as forward_auth does
			setPlaceholder(r, address, earlier)
			setPlaceholder(r, status, "204")
		}
		for pass := range 2 { // the second is that of a route for errors
			l := newLimiter(m, fmt.Sprint(pass))
			addr := fmt.Sprintf("llm:%d", pass)
			next := handler(func(w http.ResponseWriter, in *http.Request) error {
				if got := placeholder(in, address); pass == 0 && got != earlier {
					t.Errorf("before the proxy, it is %q", got)
				}
				setPlaceholder(in, address, addr)
				setPlaceholder(in, status, "200")
				return answer(200, document, chatAnswer)(w, in)
			})
			if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
				t.Fatal(err)
			}
			if a, s := placeholder(r, address), placeholder(r, status); a != addr || s != "200" {
				t.Errorf("pass %d after %q: %q, %q", pass, earlier, a, s)
			}
			l.wait(t)
		}
	}
}

func TestErrorsRouteSeesNoKeyThatWasTakenOutBehind(t *testing.T) {
	m := New()
	r := newRequest(http.MethodPost, chatPath+"?key=secret", plainBody)
	next := handler(func(_ http.ResponseWriter, in *http.Request) error {
		original := in.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
		original.RequestURI = chatPath
		*in = *in.WithContext(context.WithValue(in.Context(), caddyhttp.OriginalRequestCtxKey, original))
		return caddyhttp.Error(http.StatusForbidden, errors.New("no"))
	})
	if err := serve(httptest.NewRecorder(), r, next, newLimiter(m, "l")); err == nil {
		t.Fatal("no error")
	}
	if got := placeholder(r, "http.request.orig_uri"); got != chatPath {
		t.Errorf("got %s", got)
	}
}

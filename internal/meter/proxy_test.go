package meter

import (
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
)

func TestCompressedAnswersPassAndAreRead(t *testing.T) {
	zipped := compress(t, chatAnswer)
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("the upstream is asked for %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", document)
		w.Header().Set("Content-Encoding", "gzip")
		for i := range len(zipped) {
			_, _ = io.WriteString(w, zipped[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	res := g.post(t.Context(), t, chatPath, plainBody, "Accept-Encoding", "gzip")
	if got := readAll(t, res); got != zipped || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %d bytes, %v", len(got), res.Header)
	}
	if o := l.wait(t); o.Source != SourceReported || o.Usage.Output != 12 {
		t.Errorf("got %+v", o)
	}
}

func TestRetriesOfReverseProxyAreOneCall(t *testing.T) {
	// a port where nobody listens any more
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	ln.Close()
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != plainBody || r.ContentLength != int64(len(b)) {
			t.Errorf("the upstream gets %q", b)
		}
		_, _ = io.WriteString(w, chatAnswer)
	})
	m := New()
	l := newLimiter(m, "l")
	balanced := proxy(upstream)
	balanced["upstreams"] = slices.Insert(balanced["upstreams"].([]object), 0, object{"dial": dead})
	balanced["load_balancing"] = object{"selection_policy": object{"policy": "round_robin"}, "retries": 3}
	g := newGateway(t, []object{use(t, l), balanced}, nil)
	for range 2 { // whichever is the first
		if res := g.post(t.Context(), t, chatPath, plainBody); readAll(t, res) != chatAnswer {
			t.Errorf("got %d", res.StatusCode)
		}
		if o := l.wait(t); o.Source != SourceReported {
			t.Errorf("got %+v", o)
		}
	}
	if len(l.outcome) != 2 {
		t.Errorf("settled %d times", len(l.outcome))
	}
}

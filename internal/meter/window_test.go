package meter

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Each way through the handlers behind tells what it came to itself, however many there
// are and whatever passages there are within it.
func TestPlaceholdersTellOfTheLastPassage(t *testing.T) {
	const key = "http.reverse_proxy.upstream.hostport"
	w, r := httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody)
	c := New().Call(r)
	for _, upstream := range []string{"first", "second", "third"} {
		p := c.passApart(r.Context(), w, r)
		for _, host := range []string{upstream + "-a", upstream + "-b"} {
			in := c.passApart(p.Request().Context(), w, p.Request())
			setPlaceholder(in.Request(), key, host)
			in.Join()
			if got := placeholder(p.Request(), key); got != host {
				t.Errorf("the passage that it is in tells of %q, want %q", got, host)
			}
		}
		p.Join()
		if got := placeholder(r, key); got != upstream+"-b" {
			t.Errorf("the request tells of %q, want %q", got, upstream+"-b")
		}
	}
	c.ended = true
	again := New().Call(r) // a route for errors, with another limiter
	p := again.passApart(r.Context(), w, r)
	setPlaceholder(p.Request(), key, "fourth")
	p.Join()
	if got := placeholder(r, key); got != "fourth" {
		t.Errorf("after another call the request tells of %q", got)
	}
}

package meter

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A stream lasts, and its request's body has been sent: nobody holds it any more.
func TestStreamHoldsNoBody(t *testing.T) {
	long := longBody("a", 20_000)
	longStream := long[:len(long)-1] + `,"stream":true}`
	tests := []struct {
		name, body, contentType string
		status                  int
		unread                  int  // bytes of the body that are not sent yet
		errors                  bool // the server has routes for errors
		held                    bool
	}{
		{name: "a stream", body: askedBody, contentType: sse, status: 200},
		{name: "one that usage was asked for", body: streamBody, contentType: sse, status: 200},
		{name: "one with a long request", body: longStream, contentType: sse + "; charset=utf-8", status: 200},
		{name: "whose request is still being sent", body: askedBody, contentType: sse, status: 200, unread: 1, held: true},
		{name: "the same, and long", body: longStream, contentType: sse, status: 200, unread: 5000, held: true},
		{name: "no stream", body: plainBody, contentType: document, status: 200, held: true},
		{name: "an error", body: askedBody, contentType: sse, status: 500, held: true},
		{name: "before routes for errors", body: askedBody, contentType: sse, status: 200, errors: true, held: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			r := newRequest(http.MethodPost, chatPath, tt.body)
			if tt.errors {
				server := &caddyhttp.Server{Errors: &caddyhttp.HTTPErrorConfig{Routes: caddyhttp.RouteList{{}}}}
				r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), &sink{http.Header{}}, server)
			}
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				if _, err := io.CopyN(io.Discard, r.Body, r.ContentLength-int64(tt.unread)); err != nil {
					return err
				}
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(tt.status)
				c := callOf(r)
				if held := c.body != nil || c.sent != nil; held != tt.held {
					t.Errorf("held: %t, want %t", held, tt.held)
				}
				if m.bodies.used.Load() == 0 {
					t.Error("the budget does not know of a body that a proxy may hold")
				}
				if rest, err := io.ReadAll(r.Body); err != nil || len(rest) != tt.unread {
					t.Errorf("then %d bytes are read, want %d: %v", len(rest), tt.unread, err)
				}
				_, err := io.WriteString(w, event+eventEnd+eventUsage+eventDone)
				return err
			})
			if err := serve(&sink{http.Header{}}, r, next, l); err != nil {
				t.Fatal(err)
			}
			l.once(t)
			nothingHeld(t, m)
			if m.bodies.used.Load() != 0 {
				t.Errorf("%d bytes are charged in the end", m.bodies.used.Load())
			}
			if got := l.wait(t); tt.contentType != document && (got.Source != SourceReported || got.Usage.Input == 0) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A stream that another handler's request was answered with does not take the body from
// whoever reads the one before, such as a transport whose upstream has answered early.
func TestStreamLeavesABodyThatIsStillRead(t *testing.T) {
	for _, size := range []int{200, 20_000} {
		m := New()
		outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
		inner.cap = 7
		body := longBody("a", size)
		body = body[:len(body)-1] + `,"stream":true,"stream_options":{"include_usage":true}}` // so that the outer one changes nothing
		r := newRequest(http.MethodPost, chatPath, body)
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			early := r.Body
			begun, flows, over := make(chan struct{}), make(chan struct{}), make(chan []byte)
			go func() {
				some := make([]byte, 100)
				n, err := io.ReadFull(early, some)
				close(begun)
				<-flows
				rest, last := io.ReadAll(early)
				if err != nil || last != nil {
					t.Errorf("reading: %v, %v", err, last)
				}
				over <- append(some[:n], rest...)
			}()
			<-begun
			err := inner.ServeHTTP(w, r, handler(func(w http.ResponseWriter, r *http.Request) error {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return err
				}
				w.Header().Set("Content-Type", sse)
				w.WriteHeader(http.StatusOK)
				close(flows)
				_, err := io.WriteString(w, event+eventEnd+eventUsage+eventDone)
				return err
			}))
			if got := <-over; len(got) < len(body) {
				t.Errorf("%d bytes were read of %d", len(got), len(body))
			}
			return err
		})
		if err := serve(&sink{http.Header{}}, r, next, outer); err != nil {
			t.Fatal(err)
		}
		outer.once(t)
		inner.once(t)
		nothingHeld(t, m)
	}
}

func TestSentBodyIsReadAsAnyOther(t *testing.T) {
	want := []byte(streamBody)
	reads := map[string]func(io.Reader) ([]byte, error){
		"whole": io.ReadAll,
		"copied": func(r io.Reader) ([]byte, error) {
			var b bytes.Buffer
			_, err := io.Copy(&b, r)
			return b.Bytes(), err
		},
		"by its length": func(r io.Reader) ([]byte, error) {
			b := make([]byte, len(want))
			_, err := io.ReadFull(r, b)
			return b, err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			b := new(sentBody)
			b.reset(want)
			if b.spent() {
				t.Error("spent before it was read")
			}
			if got, err := read(b); err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %q: %v", got, err)
			}
			if !b.spent() || b.of.Size() != 0 {
				t.Errorf("spent: %t; %d bytes are held", b.spent(), b.of.Size())
			}
			if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("then %d bytes: %v", n, err)
			}
		})
	}
}

package meter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// sink is a client that takes everything.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header              { return s.header }
func (*sink) WriteHeader(int)                    {}
func (*sink) Write(p []byte) (int, error)        { return len(p), nil }
func (*sink) FlushError() error                  { return nil }
func (s *sink) reset()                           { clear(s.header) }
func (*benchEntry) ID() string                   { return "bench" }
func (*benchEntry) Headers(http.Header, []Entry) {}
func (*benchEntry) Settle(*Outcome)              {}
func (*benchEntry) Cancel()                      {}

type benchEntry struct{}

func BenchmarkServe(b *testing.B) {
	long := strings.Replace(chatAnswer, "Hello there", strings.Repeat("Hello there. ", 20<<10/13), 1)
	short := strings.Replace(chatAnswer, "Hello there", strings.Repeat("Hello there. ", 50), 1)
	stream := make([]string, 0, 203)
	for i := range 200 {
		stream = append(stream, fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{"content":"token %d"},"finish_reason":null}]}`+"\n\n", i))
	}
	stream = append(stream, eventEnd, eventUsage, eventDone)
	tests := []struct {
		name, request, contentType string
		pieces                     []string
	}{
		{"json 1 KB", plainBody, document, []string{short}},
		{"json 20 KB", plainBody, document, []string{long}},
		{"stream of 200 events", streamBody, sse, stream},
		{"stream of 200 events that the client asked for", askedBody, sse, stream},
	}
	for _, test := range tests {
		pieces := make([][]byte, len(test.pieces))
		size := 0
		for i, p := range test.pieces {
			pieces[i] = []byte(p)
			size += len(p)
		}
		contentType := []string{test.contentType}
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			if _, err := io.Copy(io.Discard, onlyReader{r.Body}); err != nil {
				return err
			}
			w.Header()["Content-Type"] = contentType
			w.WriteHeader(http.StatusOK)
			rc := http.NewResponseController(w)
			for _, p := range pieces {
				if _, err := w.Write(p); err != nil {
					return err
				}
				if err := rc.Flush(); err != nil {
					return err
				}
			}
			return nil
		})
		m := New()
		e := &benchEntry{}
		tapped := handler(func(w http.ResponseWriter, r *http.Request) error {
			c := m.Call(r)
			if err := c.Inspect(r); err != nil {
				return err
			}
			c.Meter(r)
			c.Add(e)
			return c.Serve(w, r, next)
		})
		for _, variant := range []struct {
			name string
			h    caddyhttp.Handler
		}{{"bare", next}, {"tapped", tapped}} {
			b.Run(test.name+"/"+variant.name, func(b *testing.B) {
				w := &sink{http.Header{}}
				base := newRequest(http.MethodPost, chatPath, "", "Content-Type", "application/json", "Accept-Encoding", "gzip", "User-Agent", "x")
				header := base.Header
				body := strings.NewReader("")
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					b.StopTimer()
					r := caddyhttp.PrepareRequest(base, caddy.NewReplacer(), w, nil)
					r.Header = header.Clone()
					body.Reset(test.request)
					r.Body, r.ContentLength = io.NopCloser(body), int64(len(test.request))
					w.reset()
					b.StartTimer()
					if err := variant.h.ServeHTTP(w, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A stream's events cost no memory, however many there are.
func TestEventsOfAStreamAllocateNothing(t *testing.T) {
	for _, request := range []string{streamBody, askedBody} {
		m := New()
		l := newLimiter(m, "l")
		w := &sink{http.Header{}}
		next := handler(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", sse)
			piece := []byte(event)
			rc := http.NewResponseController(w)
			write := func() {
				if _, err := w.Write(piece); err != nil {
					t.Error(err)
				}
				if err := rc.Flush(); err != nil {
					t.Error(err)
				}
			}
			write() // what is kept for the stream
			if n := testing.AllocsPerRun(200, write); n != 0 {
				t.Errorf("an event takes %v allocations", n)
			}
			return nil
		})
		if err := serve(w, newRequest(http.MethodPost, chatPath, request), next, l); err != nil {
			t.Fatal(err)
		}
	}
}

package llmretry

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// plainWriter is a response writer that tells what reaches it.
type plainWriter struct {
	*httptest.ResponseRecorder
	log []string
}

func (w *plainWriter) WriteHeader(status int) {
	w.log = append(w.log, fmt.Sprint(status))
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

func (w *plainWriter) Write(p []byte) (int, error) {
	w.log = append(w.log, string(p))
	return w.ResponseRecorder.Write(p)
}

func (w *plainWriter) FlushError() error {
	w.log = append(w.log, "flush")
	return nil
}

func TestAnswersPassAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(w http.ResponseWriter)
		want  string
	}{
		{"informational statuses", func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(204) }, "103 204"},
		{"pieces", func(w http.ResponseWriter) { io.WriteString(w, "a"); flush(w); io.WriteString(w, "b") }, "200 a flush b"},
		{"a flush before anything", func(w http.ResponseWriter) { flush(w) }, "200 flush"},
		{"a reader", func(w http.ResponseWriter) { io.Copy(w, strings.NewReader("a")) }, "200 a"},
		{"a stream, from its first event on", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			flush(w)
			io.WriteString(w, ": x\n\n")
			flush(w)
			io.WriteString(w, "data: 1\n")
			io.WriteString(w, "\n")
			flush(w)
			io.WriteString(w, "data: {\"error\":1}\n\n")
		}, "200 : x\n\ndata: 1\n \n flush data: {\"error\":1}\n\n"},
		{"a document, from its first byte that tells", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"e`)
			io.WriteString(w, `nd":`)
			io.WriteString(w, `1}`)
		}, `200 {"e nd": 1}`},
		{"a stream without an event", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": x\n\n")
		}, "200 : x\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHandler(t, new(Handler))
			w := &plainWriter{ResponseRecorder: httptest.NewRecorder()}
			r := request(t.Context(), chatBody)
			r.URL.Path = "/v1/models"
			err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				tt.write(w)
				return nil
			}))
			if got := strings.Join(w.log, " "); err != nil || got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
		})
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func TestStreamOfCommentsIsNotHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, new(Handler))
		w := &plainWriter{ResponseRecorder: httptest.NewRecorder()}
		_ = h.ServeHTTP(w, request(t.Context(), chatBody), caddyhttp.HandlerFunc(func(g http.ResponseWriter, _ *http.Request) error {
			g.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(g, ": wait\n\n")
			time.Sleep(mostPeek + 1)
			io.WriteString(g, ": wait\n\n")
			if len(w.log) == 0 {
				t.Error("the client hears nothing")
			}
			return nil
		}))
	})
}

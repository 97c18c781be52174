package llmretry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

const (
	chatBody = `{"model":"gpt-5","messages":[{"role":"user","content":"Hi"}]}`
	// sixty is an answer that reports 60 tokens.
	sixty = `{"model":"gpt-5-2025-08-07","choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}`
	busy  = `{"error":{"message":"slow down","type":"rate_limit_error"}}`
	delta = `data: {"choices":[{"delta":{"content":"Hello"}}]}` + "\n\n"
)

// newHandler is a handler that no config has; its state is as at the start.
func newHandler(t testing.TB, h *Handler) *Handler {
	t.Helper()
	if err := h.init(); err != nil {
		t.Fatal(err)
	}
	h.meter, h.logger = meter.New(), zap.NewNop()
	return h
}

// limiter counts a call as limiters do.
type limiter struct {
	m       *meter.Meter
	settled []meter.Outcome
	cancels int
}

func (l *limiter) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := l.m.Call(r)
	if err := c.Inspect(r); err != nil {
		return err
	}
	c.Meter(r)
	c.Add(&entry{l})
	return c.Serve(w, r, next)
}

type entry struct{ l *limiter }

func (*entry) ID() string                         { return "l" }
func (*entry) Headers(http.Header, []meter.Entry) {}
func (e *entry) Settle(o *meter.Outcome)          { e.l.settled = append(e.l.settled, *o) }
func (e *entry) Cancel()                          { e.l.cancels++ }

// result is what came of a call.
type result struct {
	*httptest.ResponseRecorder
	err      error
	outcome  meter.Outcome
	settled  int
	cancels  int
	aborted  bool
	duration time.Duration
}

// request is one as Caddy gives to handlers.
func request(ctx context.Context, body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer())
	return r.WithContext(ctx)
}

// do sends a call through a limiter and the handler to an upstream.
func do(h *Handler, up caddyhttp.HandlerFunc, r *http.Request) (res result) {
	res.ResponseRecorder = httptest.NewRecorder()
	l := &limiter{m: h.meter}
	begin := time.Now()
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint // it is thrown as it is
				panic(v)
			}
			res.aborted = true
		}
		res.settled, res.cancels, res.duration = len(l.settled), l.cancels, time.Since(begin)
		if len(l.settled) > 0 {
			res.outcome = l.settled[0]
		}
	}()
	res.err = l.serve(res.ResponseRecorder, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return h.ServeHTTP(w, r, up)
	}))
	return res
}

// total is what a call was charged, in tokens.
func (rs *result) total() int64 {
	u := rs.outcome.All()
	return u.Total()
}

// script is an upstream that answers call after call with the next step, and with the last
// from then on. It keeps what it got.
type script struct {
	steps []caddyhttp.HandlerFunc
	calls int
	seen  []string
}

func (s *script) serve(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	s.seen = append(s.seen, fmt.Sprintf("%s %s %s", r.URL.RequestURI(), r.Header.Get("X-Extra"), body))
	step := s.steps[min(s.calls, len(s.steps)-1)]
	s.calls++
	return step(w, r)
}

// replies answers with a status, a body and fields of the header.
func replies(status int, body string, header ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, err := io.WriteString(w, body)
		return err
	}
}

// streams sends pieces of a stream.
func streams(pieces ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			if _, err := io.WriteString(w, p); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		return nil
	}
}

// breaks does the same and breaks off.
func breaks(pieces ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		_ = streams(pieces...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

// refuses is how reverse_proxy tells that nobody listens.
func refuses(http.ResponseWriter, *http.Request) error {
	return caddyhttp.Error(http.StatusBadGateway, fmt.Errorf("connection refused"))
}

// sends has the trace of a request told that it was sent upstream.
func sends(r *http.Request) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn("example.com:443")
	trace.WroteRequest(httptrace.WroteRequestInfo{})
}

// drops is how a connection ends that breaks before the header.
func drops(_ http.ResponseWriter, r *http.Request) error {
	sends(r)
	return caddyhttp.Error(http.StatusBadGateway, io.EOF)
}

// slow is how it ends where the header takes too long.
func slow(_ http.ResponseWriter, r *http.Request) error {
	sends(r)
	return caddyhttp.Error(http.StatusGatewayTimeout, context.DeadlineExceeded)
}

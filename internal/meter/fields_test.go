package meter

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

const (
	ownPath   = "/v9/answers"
	ownAnswer = `{"answer":"Hello there","bill":{"in":30,"out":12}}`
	ownEvents = `data: {"answer":"Hello"}` + "\n\n" + `data: {"bill":{"in":30,"out":1}}` + "\n\n" + `data: {"bill":{"in":30,"out":1500}}` + "\n\n"
)

// seeker is a limiter that has fields looked for.
type seeker struct {
	*limiter
	fields *usage.Fields
}

func (s seeker) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if s.fields != nil {
		s.m.Call(r).Seek(s.fields)
	}
	return s.limiter.ServeHTTP(w, r, next)
}

func TestFieldsAreWhatTheCallUsed(t *testing.T) {
	bill, other, absent := newFields(t, "bill.in", "bill.out"), newFields(t, "answers.#.n"), newFields(t, "absent")
	expected := usage.Usage{Input: promptTokens, Output: unknownOutput}
	for _, tc := range []struct {
		name         string
		outer, inner *usage.Fields
		path         string
		ending       ending
		source       Source
		usage        usage.Usage
	}{
		{"in a document", bill, nil, ownPath, ending{status: 200, contentType: document, body: ownAnswer}, SourceReported, usage.Usage{Input: 42}},
		{"in a stream: the last", bill, nil, ownPath, ending{status: 200, contentType: sse, body: ownEvents}, SourceReported, usage.Usage{Input: 1530}},
		{"sought by the inner limiter alone", nil, bill, ownPath, ending{status: 200, contentType: document, body: ownAnswer}, SourceReported, usage.Usage{Input: 42}},
		{"sought by both: those that are found", other, bill, ownPath, ending{status: 200, contentType: document, body: ownAnswer}, SourceReported, usage.Usage{Input: 42}},
		{"beside a format that is known", bill, nil, chatPath, ending{status: 200, contentType: document, body: strings.Replace(chatAnswer, "{", `{"bill":{"in":7},`, 1)}, SourceReported, usage.Usage{Input: 9, Output: 12}},
		{"on an error", bill, nil, ownPath, ending{status: 500, contentType: document, body: ownAnswer}, SourceReported, usage.Usage{Input: 42}},
		{"none found", absent, nil, ownPath, ending{status: 200, contentType: document, body: ownAnswer}, SourceEstimated, expected},
		{"none found on an error", absent, nil, ownPath, ending{status: 500, contentType: document, body: ownAnswer}, SourceNone, usage.Usage{}},
		{"nothing but zeros", bill, nil, ownPath, ending{status: 200, contentType: document, body: `{"bill":{"in":0,"out":0}}`}, SourceEstimated, expected},
		{"a stream that is cut, below what was expected", bill, nil, ownPath, ending{status: 200, contentType: sse, body: `data: {"bill":{"in":30}}` + "\n\n", aborts: true}, SourceEstimated, expected},
		{"a stream that is cut, above what was expected", bill, nil, ownPath, ending{status: 200, contentType: sse, body: ownEvents, aborts: true}, SourceEstimated, usage.Usage{Input: 1530 - unknownOutput, Output: unknownOutput}},
		{"where calls are free", bill, nil, "/v1/moderations", ending{status: 200, contentType: document, body: ownAnswer}, SourceNone, usage.Usage{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
			upstream := handler(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", tc.ending.contentType)
				w.WriteHeader(tc.ending.status)
				_, err := io.WriteString(w, tc.ending.body)
				if tc.ending.aborts {
					panic(http.ErrAbortHandler)
				}
				return err
			})
			func() {
				defer func() {
					if recover() != nil && !tc.ending.aborts {
						t.Error("a panic")
					}
				}()
				next := handler(func(w http.ResponseWriter, r *http.Request) error {
					return seeker{inner, tc.inner}.ServeHTTP(w, r, upstream)
				})
				w := httptest.NewRecorder()
				if err := (seeker{outer, tc.outer}).ServeHTTP(w, newRequest(http.MethodPost, tc.path, plainBody), next); err != nil {
					t.Error(err)
				}
				if got := w.Body.String(); got != tc.ending.body {
					t.Errorf("the client got %q", got)
				}
			}()
			for _, l := range []*limiter{outer, inner} {
				if o := l.wait(t); o.Source != tc.source || o.Usage != tc.usage {
					t.Errorf("%s: got %s %+v, want %s %+v", l.name, o.Source, o.Usage, tc.source, tc.usage)
				}
			}
			outer.once(t)
		})
	}
}

func newFields(t *testing.T, paths ...string) *usage.Fields {
	t.Helper()
	f, err := usage.NewFields(paths)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

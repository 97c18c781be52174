package tokenlimit_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBodiesThatCannotBeRead(t *testing.T) {
	site := `token_limit bodies {
		limit 10k tokens per day
		limit 100 requests per day
	}
	test_upstream`
	g := start(t, "llm {\nmeter {\nmax_body 200B\n}\n}", site)
	for _, tc := range []struct {
		name, body string
		headers    []string
		status     int
		code       string
	}{
		{"too large", `{"model":"` + strings.Repeat("m", 300) + `"}`, nil, 413, "request_body_too_large"},
		{"no JSON", `{"model"`, nil, 400, "invalid_request"},
		{"a member twice", `{"model":"a","model":"b"}`, nil, 400, "invalid_request"},
		{"a member in another case", `{"model":"a","Stream":true}`, nil, 400, "invalid_request"},
		{"an encoding nobody knows", question, []string{"Content-Encoding", "lzma"}, 415, "unsupported_content_encoding"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := g.do("POST", "/v1/chat/completions", tc.body, tc.headers...)
			want(t, w, tc.status)
			var v struct{ Error struct{ Code string } }
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v.Error.Code != tc.code {
				t.Errorf("got %s (%v)", w.Body, err)
			}
		})
	}
	g.used("bodies", "", "requests per day", 0)
	t.Run("compressed", func(t *testing.T) {
		var b strings.Builder
		z := gzip.NewWriter(&b)
		io.WriteString(z, question)
		z.Close()
		want(t, g.do("POST", "/v1/chat/completions", b.String(), "Content-Encoding", "gzip"), 200)
	})

	t.Run("too large for a shadow, too", func(t *testing.T) {
		g := start(t, "llm {\nmeter {\nmax_body 20B\n}\n}", "token_limit bodies-shadow {\nlimit 10k tokens per day\nshadow\n}\ntest_upstream")
		want(t, g.chat(""), 413)
	})
	t.Run("any, where only requests count", func(t *testing.T) {
		g := start(t, "llm {\nmeter {\nmax_body 20B\n}\n}", "token_limit bodies-requests {\nlimit 10 requests per day\n}\ntest_upstream")
		want(t, g.chat(""), 200)
	})
}

func TestAnUnreadableConnectionIsNoRefusal(t *testing.T) {
	g := start(t, "", "token_limit broken {\nlimit 10k tokens per day\nlimit 10 requests per day\n}\ntest_upstream")
	r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(`{"model":`), failing{}))
	w := httptest.NewRecorder()
	g.server.ServeHTTP(w, r)
	if w.Code < 400 || w.Code == 429 {
		t.Errorf("got status %d", w.Code)
	}
	g.used("broken", "", "requests per day", 0)
}

// failing is a connection that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

package meter

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

const secret = "sk-live-0123456789"

func TestLogObject(t *testing.T) {
	cached := strings.Replace(chatAnswer, `"total_tokens":21`,
		`"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}`, 1)
	moderations := usage.Identify(http.MethodPost, &url.URL{Path: "/v1/moderations"}, nil).API
	tests := []struct {
		name   string
		vars   map[string]string
		path   string
		body   string
		answer string
		inner  func(*limiter)
		want   string
	}{
		{
			name: "of a call without identity", path: chatPath, body: plainBody, answer: cached,
			want: `{"consumer":"default","api":"openai.chat","model":"gpt-5","served_model":"gpt-5-2025-08-07",
				"input_tokens":9,"output_tokens":12,"total_tokens":21,"cache_read_tokens":4,"cache_write_tokens":0,
				"reasoning_tokens":5,"other_tokens":0,"usage_source":"reported"}`,
		},
		{
			name: "of a consumer's call", path: chatPath, body: plainBody, answer: `{}`,
			vars: map[string]string{VarApplication: "app", VarGroup: "gold", VarKeyID: "k1"},
			want: `{"consumer":"app","key_id":"k1","group":"gold","api":"openai.chat","model":"gpt-5",
				"input_tokens":8,"output_tokens":1024,"total_tokens":1032,"cache_read_tokens":0,"cache_write_tokens":0,
				"reasoning_tokens":0,"other_tokens":0,"usage_source":"estimated"}`,
		},
		{
			name: "with caches and another model inside", path: messages, body: strings.Replace(claudeBody, `"stream":true,`, "", 1),
			answer: `{"type":"message","model":"claude-opus-4-5","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{
				"input_tokens":10,"output_tokens":20,"cache_creation_input_tokens":30,"cache_read_input_tokens":40,
				"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":10},
				"iterations":[{"type":"message","input_tokens":10,"output_tokens":20,"cache_creation_input_tokens":30,"cache_read_input_tokens":40},
				{"type":"advisor_message","model":"claude-haiku-4-5","input_tokens":100,"output_tokens":200}]}}`,
			want: `{"consumer":"default","api":"anthropic.messages","model":"claude-opus-4-5","served_model":"claude-opus-4-5",
				"input_tokens":180,"output_tokens":220,"total_tokens":400,"cache_read_tokens":40,"cache_write_tokens":30,
				"reasoning_tokens":0,"other_tokens":300,"usage_source":"reported"}`,
		},
		{
			name: "of a refused call", path: chatPath, body: plainBody,
			inner: func(l *limiter) { l.refuse = 429 },
			want:  `{"consumer":"default","api":"openai.chat","model":"gpt-5","usage_source":"none","refused_by":"inner"}`,
		},
		{
			name: "of a free call", path: "/v1/moderations", body: plainBody, answer: `{"id":"m","results":[]}`,
			want: `{"consumer":"default","api":"` + moderations.String() + `","usage_source":"none"}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
			if test.inner != nil {
				test.inner(inner)
			}
			r := newRequest(http.MethodPost, test.path, test.body, "Authorization", "Bearer "+secret, "X-Api-Key", secret)
			for name, value := range test.vars {
				caddyhttp.SetVar(r.Context(), name, value)
			}
			if err := serve(httptest.NewRecorder(), r, answer(200, document, test.answer), outer, inner); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(logObject(r))
			if err != nil {
				t.Fatal(err)
			}
			if !sameObject(t, string(got), test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if strings.Contains(string(got), secret) {
				t.Error("the log has the key")
			}
		})
	}
}

func sameObject(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y map[string]any
	for s, v := range map[string]*map[string]any{a: &x, b: &y} {
		if err := json.Unmarshal([]byte(s), v); err != nil {
			t.Fatal(err)
		}
	}
	return maps.Equal(x, y)
}

func TestLogNamesWhoWouldHaveRefused(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r := newRequest(http.MethodPost, chatPath, plainBody)
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		m.Call(r).Shadowed("a")
		m.Call(r).Shadowed("b")
		return answer(200, document, chatAnswer)(w, r)
	})
	if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
		t.Fatal(err)
	}
	if got := logObject(r)["shadow_refused_by"]; got != "a,b" {
		t.Errorf("got %v", got)
	}
}

func TestLogBoundsNames(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	long := strings.Repeat("é", 1000)
	r := newRequest(http.MethodPost, chatPath, strings.Replace(plainBody, "gpt-5", "m"+long, 1))
	if err := serve(httptest.NewRecorder(), r, answer(200, document, strings.Replace(chatAnswer, "gpt-5", long, 1)), l); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model", "served_model"} {
		s, _ := logObject(r)[name].(string)
		if len(s) > modelMax || !utf8.ValidString(s) || !strings.Contains(long+"m"+long, s) {
			t.Errorf("%s: %q", name, s)
		}
	}
}

func TestAccessLogHasTheObjectOfTheLastCall(t *testing.T) {
	m := New()
	first, second := newLimiter(m, "first"), newLimiter(m, "second")
	fail := middleware(func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error { return http.ErrNotSupported })
	give := middleware(func(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
		return answer(200, document, chatAnswer)(w, r)
	})
	file := filepath.Join(t.TempDir(), "access.log")
	g := newLoggingGateway(t, []object{use(t, first), use(t, fail)}, []object{use(t, second), use(t, give)}, file)
	res := g.post(t.Context(), t, chatPath, plainBody, "Authorization", "Bearer "+secret)
	readAll(t, res)
	g.stop() // an entry is written when the handlers have returned
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var line struct{ LLM json.RawMessage }
	if err := json.Unmarshal(raw, &line); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	const want = `{"consumer":"default","api":"openai.chat","model":"gpt-5","served_model":"gpt-5-2025-08-07",
		"input_tokens":9,"output_tokens":12,"total_tokens":21,"cache_read_tokens":0,"cache_write_tokens":0,
		"reasoning_tokens":0,"other_tokens":0,"usage_source":"reported"}`
	if !sameObject(t, string(line.LLM), want) {
		t.Errorf("got %s", line.LLM)
	}
	if strings.Count(string(raw), `"llm":`) != 1 || strings.Contains(string(raw), secret) {
		t.Errorf("got %s", raw)
	}
}

func TestLogNeedsNoAccessLog(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r := newRequest(http.MethodPost, chatPath, plainBody)
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.ExtraLogFieldsCtxKey, nil))
	if err := serve(httptest.NewRecorder(), r, answer(200, document, chatAnswer), l); err != nil {
		t.Fatal(err)
	}
	l.wait(t)
}

func TestWithoutAnAccessLogNoEntryIsMade(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r := newRequest(http.MethodPost, chatPath, plainBody)
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.ServerCtxKey, new(caddyhttp.Server)))
	if err := serve(httptest.NewRecorder(), r, answer(200, document, chatAnswer), l); err != nil {
		t.Fatal(err)
	}
	l.wait(t)
	if call := callOf(r); call == nil || call.line != nil {
		t.Errorf("got the call %p, want one without an entry", call)
	}
}

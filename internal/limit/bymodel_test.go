package limit

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// idsOf are the names of the counters of rules, and what they are called.
func idsOf(infos []llmapp.RuleInfo) (ids []string) {
	for _, info := range infos {
		ids = append(ids, strings.TrimSpace(info.Words+" "+info.Model)+" = "+info.Store.ID)
	}
	return ids
}

func TestRulesOfAModelAreThoseOfItsCalls(t *testing.T) {
	l := newTestLimiter(t, Config{
		ConsumerBased: true, Limits: oneOf10,
		Models: []ModelBlock{
			{Match: []string{"gpt-4o", "qwen*"}, Limits: oneOf10, PerModel: true},
			{Match: []string{"claude*"}, Limits: oneOf10},
			{Match: []string{"free*"}},
		},
	})
	l.id = "rules-of-a-model"
	const all = "tokens per day = tokens per day"
	for _, tc := range []struct {
		model string
		block string // the name of its counter; empty for none
	}{
		{"gpt-4o", "tokens per day (gpt-4o qwen*) gpt-4o = tokens per day [gpt-4o qwen%2A]=gpt-4o"},
		{"openai/GPT-4o-2024-08-06", "tokens per day (gpt-4o qwen*) gpt-4o = tokens per day [gpt-4o qwen%2A]=gpt-4o"},
		{"Qwen3", "tokens per day (gpt-4o qwen*) qwen3 = tokens per day [gpt-4o qwen%2A]=qwen3"},
		{"claude-x", "tokens per day (claude*) = tokens per day [claude%2A]"},
		{"free-x", ""},
		{"o3", ""},
	} {
		want := []string{all}
		if tc.block != "" {
			want = append(want, tc.block)
		}
		got := l.RulesOfModel("app", tc.model)
		if ids := idsOf(got); !slices.Equal(ids, want) {
			t.Errorf("%s: got %q, want %q", tc.model, ids, want)
		}
		for _, info := range got {
			back, ok := l.RuleOfID(info.Store.ID)
			if !ok || back.Words != info.Words || back.Model != info.Model || back.Store.ID != info.Store.ID || back.Unit != "tokens" || back.Window != "day" {
				t.Errorf("%s: %q is %+v (%t)", tc.model, info.Store.ID, back, ok)
			}
		}
	}
	for _, id := range []string{"", "tokens", "tokens per day=x", "tokens per day [gpt-4o qwen%2A]", "tokens per day [gpt-4o qwen%2A]x", "tokens per day [claude%2A]=x", "models", "model x"} {
		if info, ok := l.RuleOfID(id); ok {
			t.Errorf("%q is %+v", id, info)
		}
	}
	if info, ok := l.RuleOfID("tokens per day [gpt-4o qwen%2A]~"); !ok || info.Model != otherModels {
		t.Errorf("what the others share is %+v (%t)", info, ok)
	}
}

// A model that comes after the last that may have counters is among the others.
func TestRulesOfAModelThatComesTooLate(t *testing.T) {
	l := newTestLimiter(t, Config{ConsumerBased: true, Models: []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}})
	l.id = "rules-of-a-late-model"
	c := acquainted.of(store.Entity{Instance: l.id, Consumer: "app"})
	for i := range modelsMost {
		c.meet("m"+strings.Repeat("x", i), time.Now().Add(time.Hour), new(place))
	}
	for model, want := range map[string]string{"mxx": "mxx", "late": otherModels, otherModels: otherModels} {
		infos := l.RulesOfModel("app", model)
		if len(infos) != 1 || infos[0].Model != want || strings.HasSuffix(infos[0].Store.ID, "~") != (want == otherModels) {
			t.Errorf("%s: got %q", model, idsOf(infos))
		}
	}
}

func TestALimitOfNothingIsNoQuestionOfSize(t *testing.T) {
	l := newTestLimiter(t, Config{ConsumerBased: true, Mode: Strict, Limits: parse(t, "100 tokens per hour", "10 requests per minute")})
	results := []store.Result{
		{Exceeded: true, Overridden: true, RetryAfter: time.Second, ResetAt: time.Now().Add(30 * time.Minute)},
		{Limit: 10, Used: 1},
	}
	e := &entry{l: l, rules: l.rules, results: results}
	takes := []store.Take{{Rule: l.rules[0].store, Need: 5000}, {Rule: l.rules[1].store, Need: 1}}
	f := l.violated(e, takes, &wants{})
	if f.Status != http.StatusTooManyRequests || f.Code != "rate_limit_exceeded" || !strings.Contains(f.Message, "limit 0, used 0") {
		t.Errorf("got %d %s: %s", f.Status, f.Code, f.Message)
	}
	if f.RetryAfter < 29*time.Minute {
		t.Errorf("it is to be tried again in %s", f.RetryAfter)
	}
	h := make(http.Header)
	writeQuotas(h, e.quotas(nil), time.Now())
	for name, want := range map[string]string{hLimit: "0", hRemaining: "0", hPolicy: `"tokens per hour";q=0;w=3600`} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// What is too large beside it is the client's to change, and not the first to be told.
	results[1] = store.Result{Limit: 3, Exceeded: true, RetryAfter: time.Second}
	takes[1].Need = 4
	if f := l.violated(e, takes, &wants{}); f.Code != "request_too_large" || !strings.Contains(f.Message, "requests per minute") {
		t.Errorf("got %s: %s", f.Code, f.Message)
	}
}

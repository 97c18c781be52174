package tokenlimit_test

import (
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/caddyserver/caddy/v2/modules/logging"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

// operate sends a body to the admin endpoint.
func operate(t testing.TB, method, target, body string) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, route := range new(llmapp.Admin).Routes() {
		if route.Pattern == r.URL.Path {
			if err := route.Handler.ServeHTTP(httptest.NewRecorder(), r); err != nil {
				t.Fatalf("%s %s %s: %v", method, target, body, err)
			}
			return
		}
	}
	t.Fatalf("nobody answers %s", target)
}

// own gives a consumer a limit of its own; what names the rule and the limit.
func (q *quotas) own(consumer, what string) {
	q.t.Helper()
	operate(q.t, "PUT", "/llm/overrides", `{"instance":"`+q.name+`","consumer":"`+consumer+`",`+what+`}`)
}

// disown takes it away.
func (q *quotas) disown(consumer, what string) {
	q.t.Helper()
	operate(q.t, "DELETE", "/llm/overrides", `{"instance":"`+q.name+`","consumer":"`+consumer+`",`+what+`}`)
}

func TestLimitsOfAConsumersOwn(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "limit 2 requests per hour\nlimit 1000 tokens per hour")
		const rule = `"rule":"requests per hour"`
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 429)
		want(t, q.ask("a", "gpt-4o", ""), 429) // as it is remembered

		q.own("a", rule+`,"limit":4`)
		w := q.ask("a", "gpt-4o", "")
		want(t, w, 200)
		for name, value := range map[string]string{
			"X-Ratelimit-Limit-Requests": "4", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Limit": "4",
			"Ratelimit-Policy": `"requests per hour";q=4;w=3600`,
		} {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		want(t, q.ask("a", "gpt-4o", ""), 200)
		w = q.ask("a", "gpt-4o", "")
		want(t, w, 429)
		if !strings.Contains(w.Body.String(), "limit of requests per hour reached: limit 4, used 4") || w.Header().Get("X-Ratelimit-Limit") != "4" {
			t.Errorf("got %s and a limit of %q", w.Body, w.Header().Get("X-Ratelimit-Limit"))
		}
		if r := q.counter("a", "requests per hour"); r.Limit != 4 || r.Used != 4 || r.Remaining != 0 {
			t.Errorf("the usage tells %+v", r)
		}

		// Others have the limit of the config.
		want(t, q.ask("b", "gpt-4o", ""), 200)
		want(t, q.ask("b", "gpt-4o", ""), 200)
		want(t, q.ask("b", "gpt-4o", ""), 429)

		// Nothing at all: not for a moment, and no size of a call would fit.
		q.own("b", rule+`,"limit":0`)
		q.own("c", `"rule":"tokens per hour","limit":0`)
		for _, app := range []string{"b", "c"} {
			w = q.ask(app, "gpt-4o", "")
			want(t, w, 429)
			if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); w.Header().Get("X-Should-Retry") != "false" && left > 90*time.Second {
				t.Errorf("%s is to try again in %s s", app, w.Header().Get("Retry-After"))
			}
		}
		q.disown("a", rule)
		want(t, q.ask("a", "gpt-4o", ""), 429)
		q.disown("c", `"rule":"tokens per hour"`)
		want(t, q.ask("c", "gpt-4o", ""), 200)
	})
}

func TestLimitsOfAConsumersOwnAreKept(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "limit 1 requests per hour")
		q.own("a", `"rule":"requests per hour","limit":3`)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		// another config, in which the rule is edited
		q = quotasOf(t, q.global, q.name, "limit 2 requests per hour\nlimit 50 concurrent")
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 429)
	})
}

func TestLimitsOfAConsumersOwnModel(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model * {\nlimit 1 requests per hour\nper_model\n}\nlimit 100 requests per hour")
		const rule = `"rule":"requests per hour (*)"`
		// before it was ever called
		q.own("a", rule+`,"model":"openai/GPT-4o","limit":2`)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		want(t, q.ask("a", "gpt-4o", ""), 429)
		want(t, q.ask("a", "qwen3", ""), 200)
		want(t, q.ask("a", "qwen3", ""), 429)
		q.own("a", rule+`,"model":"qwen3","limit":2`)
		want(t, q.ask("a", "qwen3", ""), 200)
		want(t, q.ask("a", "qwen3", ""), 429)

		var rows []struct {
			Rule, Model string
			Limit       int
			Configured  int
		}
		if err := json.Unmarshal(admin(t, "/llm/overrides?consumer=a&instance="+q.name), &rows); err != nil {
			t.Fatal(err)
		}
		if len(rows) != 2 || rows[0].Model != "gpt-4o" || rows[1].Model != "qwen3" || rows[0].Limit != 2 || rows[0].Configured != 1 {
			t.Errorf("got %+v", rows)
		}
		q.disown("a", rule+`,"model":"gpt-4o"`)
		if r := q.counter("a", "requests per hour (*) [gpt-4o]"); r.Limit != 1 || r.Used != 2 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestUsageIsAdjusted(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "mode charge_after\nlimit 100 tokens per hour\nlimit 1000 tokens per day\nmodel gpt* {\nlimit 50 tokens per hour\n}")
		adjust := func(what string) {
			t.Helper()
			operate(t, "POST", "/llm/usage/adjust", `{"instance":"`+q.name+`","consumer":"a","unit":"tokens",`+what+`}`)
		}
		uses := func(hour, day, block float64) {
			t.Helper()
			q.uses("a", "tokens per hour", hour)
			q.uses("a", "tokens per day", day)
			q.uses("a", "tokens per hour (gpt*)", block)
		}
		want(t, q.ask("a", "gpt-4o", ""), 200) // 15 tokens
		adjust(`"amount":35`)
		uses(50, 50, 50)
		want(t, q.ask("a", "gpt-4o", ""), 429)
		want(t, q.ask("a", "gpt-4o", ""), 429)
		want(t, q.ask("a", "qwen3", ""), 200)
		adjust(`"amount":-1,"model":"gpt-4o"`) // seen at once, whatever is remembered
		uses(64, 64, 49)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		adjust(`"amount":-200,"window":"hour"`)
		uses(79-200, 79, 64-200)
		operate(t, "DELETE", "/llm/usage?consumer=a&instance="+q.name, "")
		uses(0, 0, 0)
		want(t, q.ask("a", "gpt-4o", ""), 200)
		uses(15, 15, 15)
	})
}

// curl is a line of the documentation.
var curl = regexp.MustCompile(`(?m)^curl -s (?:-X (\w+) )?'?localhost:2019([^' ]*)'?(?: -d '(.*?)')?(?: +#.*)?$`)

// The lines that operators paste work beside the example.
func TestLinesOfTheDocumentationWork(t *testing.T) {
	page, err := os.ReadFile("../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, string(example)); err != nil {
		t.Fatal(err)
	}
	lines := curl.FindAllStringSubmatch(string(page), -1)
	if n := strings.Count(string(page), "\ncurl "); len(lines) != n || n == 0 {
		t.Errorf("%d lines of %d are understood", len(lines), n)
	}
	for _, line := range lines {
		operate(t, cmp.Or(line[1], "GET"), line[2], line[3])
	}
}

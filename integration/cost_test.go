package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// memoryStore is the global option for counters in this process. Tests of budgets take
// the store as a parameter: what they promise holds wherever counts are kept.
const memoryStore = "store memory"

// tenCents prices the calls of g.chat at $0.10: 20 tokens read and 40 written.
const tenCents = `llm_cost {
			price gpt-4o-mini {
				input 1000
				output 2000
			}
		}`

// dime prices any call at $0.10, whatever it uses.
const dime = `llm_cost {
			price * {
				input 0
				output 0
				request 0.10
			}
		}`

func TestBudgetsOfMemory(t *testing.T) { testBudgets(t, memoryStore) }

// testBudgets tells that $0.20 an hour for each application admit two calls of $0.10,
// wherever the directives stand.
func testBudgets(t *testing.T, store string) {
	const budget = `cost_limit {name} {
			consumer_based
			limit $0.20 per hour
		}`
	const tokens = `token_limit {name}-tokens {
			consumer_based
			limit 1M tokens per hour
		}`
	const proxy = `reverse_proxy {upstream}`
	const other = `llm_cost {
			price gpt-4o-mini {
				input 1
				output 1
			}
		}`
	route := func(directives ...string) string { return "route {\n" + strings.Join(directives, "\n") + "\n}" }
	for _, tc := range []struct {
		name string
		site string
	}{
		{"sorted", budget + "\n" + tenCents + "\n" + auth + "\n" + proxy},
		{"sorted, with a limit of tokens", tokens + "\n" + tenCents + "\n" + auth + "\n" + proxy + "\n" + budget},
		{"prices before the budget", route(auth, tenCents, budget, proxy)},
		{"prices behind the budget", route(auth, budget, tenCents, proxy)},
		{"prices before the keys", route(tenCents, auth, budget, proxy)},
		{"prices twice", route(auth, tenCents, budget, tenCents, proxy)},
		{"prices twice before the budget", route(auth, tenCents, tenCents, budget, proxy)},
		{"the innermost of different prices", route(auth, other, budget, tenCents, proxy)},
		{"prices between limits", route(auth, tokens, tenCents, budget, proxy)},
		{"prices behind limits", route(auth, budget, tokens, tenCents, proxy)},
		{"prices in a route of their own", budget + "\n" + auth + "\nhandle /v1/* {\n" + tenCents + "\n" + proxy + "\n}"},
		{"a budget in a route of its own", tenCents + "\n" + auth + "\nhandle /v1/* {\n" + budget + "\n" + proxy + "\n}"},
	} {
		for _, mode := range []string{"charge_after", "reserve"} {
			t.Run(tc.name+"/"+mode, func(t *testing.T) {
				up := newUpstream(t, nil)
				site := strings.Replace(tc.site, "limit $0.20 per hour", "limit $0.20 per hour\nmode "+mode, 1)
				g := start(t, up, "{\n\tllm {\n\t\t"+store+"\n\t}\n}\n{site} {\n"+site+"\n}")
				for i, want := range []int{200, 200, 429, 429} {
					if a := g.chat(keyA); a.Status != want {
						t.Fatalf("call %d of application A: %d, want %d: %s", i+1, a.Status, want, a.Body)
					}
				}
				if n := up.calls(); n != 2 {
					t.Errorf("the upstream was called %d times, want 2", n)
				}
				if a := g.chat(keyB); a.Status != http.StatusOK {
					t.Errorf("application B: %d", a.Status)
				}
				g.spends("app-a", dollars{"0.20", "0.20", "0", "0"})
				g.spends("app-b", dollars{"0.20", "0.10", "0", "0.10"})
			})
		}
	}
}

func TestStrictBudgetsOfMemory(t *testing.T) { testStrictBudgets(t, memoryStore) }

// testStrictBudgets tells that calls at the same time never spend more than there is.
func testStrictBudgets(t *testing.T, store string) {
	const budget = `cost_limit {name} {
			consumer_based
			mode strict
			limit $0.20 per hour
			limit $1 per day
		}`
	for _, tc := range []struct{ name, site string }{
		{"prices before the budget", dime + "\n" + budget},
		{"prices behind the budget", budget + "\n" + dime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, "{\n\tllm {\n\t\t"+store+"\n\t}\n}\n{site} {\nroute {\n"+auth+tc.site+"\nreverse_proxy {upstream}\n}\n}")
			var (
				wg  sync.WaitGroup
				mu  sync.Mutex
				got = make(map[int]int)
			)
			for range 20 {
				wg.Go(func() {
					a, err := g.try(t.Context(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got[a.Status]++
					mu.Unlock()
				})
			}
			wg.Wait()
			if got[200] != 2 || got[429] != 18 || up.calls() != 2 {
				t.Errorf("answers %v, and %d calls of the upstream; want two", got, up.calls())
			}
			g.spends("app-a", dollars{"0.20", "0.20", "0", "0"})
			if !strings.Contains(up.last().Body, "max_tokens") && !strings.Contains(up.last().Body, "max_completion_tokens") {
				t.Errorf("no cap was written in: %s", up.last().Body)
			}
		})
	}
}

// dollars are the amounts of a counter that the admin endpoint tells.
type dollars struct{ Limit, Used, Reserved, Remaining string }

// spends waits for a counter to be what calls have made of it: a store that others share
// need not show it at once.
func (g *gateway) spends(consumer string, want dollars) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%+v spent by %s", want, consumer), func() bool { return g.budget("", consumer) == want })
}

// spent is the counter of an hour of this test's instance.
func (g *gateway) spent(consumer string) dollars {
	g.t.Helper()
	return g.spentBy("", consumer)
}

// spentBy is the same of another instance of this test's, once no call holds anything of it.
func (g *gateway) spentBy(instance, consumer string) (d dollars) {
	g.t.Helper()
	atRest(func() bool { d = g.budget(instance, consumer); return d.Reserved == "0" })
	return d
}

// budget is the counter of an hour of an instance of this test's at this instant.
func (g *gateway) budget(instance, consumer string) dollars {
	g.t.Helper()
	var rows []struct {
		Rule, Consumer, Unit string
		dollars
	}
	g.adminGet("/llm/usage?instance="+url.QueryEscape(g.testName()+instance)+"&consumer="+consumer, &rows)
	for _, r := range rows {
		if r.Rule == "usd per hour" && r.Unit == "usd" && r.Consumer == consumer {
			return r.dollars
		}
	}
	g.t.Fatalf("no counter for %q in %+v", consumer, rows)
	return dollars{}
}

func TestAnswersTellWhatIsLeftOfABudget(t *testing.T) {
	g := start(t, newUpstream(t, nil), `{site} {`+auth+tenCents+`
		cost_limit {name} {
			consumer_based
			limit $0.20 per hour
		}
		reverse_proxy {upstream}
	}`)
	const policy = `"usd per hour";q=200000;qu="microdollars";w=3600`
	for i, want := range []string{"0.20", "0.10", "0"} {
		a := g.chat(keyA)
		if i < 2 && a.Status != 200 || i == 2 && a.Status != 429 {
			t.Fatalf("call %d: %d", i+1, a.Status)
		}
		for name, v := range map[string]string{
			"X-RateLimit-Cost-Limit-Dollars": "0.20", "RateLimit-Policy": policy, "X-RateLimit-Limit": "0.20",
		} {
			if got := a.Header.Get(name); got != v {
				t.Errorf("answer %d: %s %q, want %q", i+1, name, got, v)
			}
		}
		// what this call may cost is not left for others
		if got := a.Header.Get("X-RateLimit-Cost-Remaining-Dollars"); i == 2 && got != want || got > want {
			t.Errorf("answer %d: %q remain, want at most %q", i+1, got, want)
		}
		if i < 2 {
			continue
		}
		for name, v := range map[string]string{
			"X-RateLimit-Ban-Level": "hourly", "X-RateLimit-Unit": "usd", "X-RateLimit-Window": "hour", "X-RateLimit-Remaining": "0",
		} {
			if got := a.Header.Get(name); got != v {
				t.Errorf("refusal: %s %q, want %q", name, got, v)
			}
		}
		if !strings.Contains(a.Body, "limit of usd per hour reached: limit $0.20, used $0.20") {
			t.Errorf("the refusal says %s", a.Body)
		}
	}
}

func TestCallsOfModelsWithoutAPrice(t *testing.T) {
	const budget = `cost_limit {name} {
			consumer_based
			limit $0.20 per hour
		}`
	cost := func(line string) string { return "llm_cost {\n" + line + "\n}" }
	for _, tc := range []struct {
		name, site string
		status     int
		spent      string // empty where nothing is counted
		cost       string // as the log has it; empty where it is absent
		vars       string // the two variables
	}{
		{"under a budget", budget, 400, "0", "", "|"},
		{"under a budget, by default of llm_cost", budget + "\n" + cost(""), 400, "0", "", "|"},
		{"without a budget", cost(""), 200, "", "", "|unpriced"},
		{"denied without a budget", cost("unknown_model deny"), 400, "", "", "|"},
		{"let pass", budget + "\n" + cost("unknown_model unpriced"), 200, "0", "", "|unpriced"},
		{"at nothing", budget + "\n" + cost("unknown_model zero"), 200, "0", "0.000000000000", "0.000000000000|calculated"},
		{"at a default", budget + "\n" + cost("unknown_model default 1000 2000"), 200, "0.10", "0.100000000000", "0.100000000000|calculated"},
		{"by an alias", budget + "\n" + cost("alias house-model gpt-4o-mini"), 200, "0.000027", "0.000027000000", "0.000027000000|calculated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up := newUpstream(t, houseModel)
			g := start(t, up, `{site} {
				log
				log_append cost {http.vars.x-llm-cost}
				log_append cost_status {http.vars.x-llm-cost-status}
				`+auth+tc.site+`
				reverse_proxy {upstream}
			}`)
			a := g.call("POST", "/v1/chat/completions", keyA, `{"model":"house-model","messages":[{"role":"user","content":"hi"}]}`)
			if a.Status != tc.status {
				t.Fatalf("got %d: %s", a.Status, a.Body)
			}
			if a.Status == 400 && !strings.Contains(a.Body, `"model_not_priced"`) {
				t.Errorf("got %s", a.Body)
			}
			if tc.spent != "" && a.Status == 200 {
				if c := g.spent("app-a"); c.Used != tc.spent || c.Reserved != "0" {
					t.Errorf("spent %+v, want %s", c, tc.spent)
				}
			}
			line := g.logLine()
			if got, _ := line.LLM["cost_usd"].(string); got != tc.cost {
				t.Errorf("the log says a cost of %q, want %q: %v", got, tc.cost, line.LLM)
			}
			if got := line.Cost + "|" + line.Status; got != tc.vars {
				t.Errorf("the variables are %q, want %q", got, tc.vars)
			}
		})
	}
}

// accessLine is what the access log tells of a call.
type accessLine struct {
	Message string         `json:"msg"`
	LLM     map[string]any `json:"llm"`
	Cost    string         `json:"cost"`
	Status  string         `json:"cost_status"`
}

// logLine is the last line of the access log.
func (g *gateway) logLine() (line accessLine) {
	g.t.Helper()
	eventually(g.t, "the call is logged", func() bool {
		for text := range strings.SplitSeq(g.logs.text(), "\n") {
			var l accessLine
			if err := json.Unmarshal([]byte(text), &l); err == nil && l.Message == "handled request" {
				line = l
			}
		}
		return line.LLM != nil
	})
	return line
}

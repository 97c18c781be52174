package llmapp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestQuotasOfModels(t *testing.T) {
	block := func(model string) RuleInfo {
		return RuleInfo{Words: "tokens per day (gpt-*)", Unit: "tokens", Limit: 100, PerModel: true, Models: []string{"gpt-*"}, Model: model}
	}
	top := RuleInfo{Words: "tokens per day", Unit: "tokens", Limit: 1000}
	together := RuleInfo{Words: "tokens per day (glm)", Unit: "tokens", Limit: 50, Models: []string{"glm"}}
	infos := []RuleInfo{top, block(""), block("gpt-5"), block("gpt-6"), block("other"), together}
	for _, tc := range []struct {
		name    string
		results []store.Result
		want    []string
	}{
		{"nothing was called", make([]store.Result, 6), []string{"tokens per day: 0/1000", "tokens per day (gpt-*): 0/100", "tokens per day (glm): 0/50"}},
		{"one was called", []store.Result{{Used: 7}, {}, {}, {Used: 7}, {}, {}}, []string{"tokens per day: 7/1000", "tokens per day (gpt-*) gpt-6: 7/100", "tokens per day (glm): 0/50"}},
		{"one is being called", []store.Result{{}, {}, {Held: 3}, {}, {}, {}}, []string{"tokens per day: 0/1000", "tokens per day (gpt-*) gpt-5: 0/100", "tokens per day (glm): 0/50"}},
		{"one had a grant", []store.Result{{}, {}, {}, {}, {Used: -5}, {}}, []string{"tokens per day: 0/1000", "tokens per day (gpt-*) other: -5/100", "tokens per day (glm): 0/50"}},
		{"models had counted together", []store.Result{{}, {Used: 9, Held: 1}, {}, {}, {}, {Used: 4}}, []string{"tokens per day: 0/1000", "tokens per day (gpt-*): 0/100", "tokens per day (glm): 4/50"}},
		{"the store knows a limit of one's own", []store.Result{{Limit: 2000, Overridden: true}, {}, {}, {}, {}, {Limit: 0, Overridden: true}}, []string{"tokens per day: 0/2000", "tokens per day (gpt-*): 0/100", "tokens per day (glm): 0/0"}},
		{"a model has a limit of its own", []store.Result{{}, {Limit: 1, Overridden: true}, {}, {Limit: 300, Overridden: true}, {}, {}}, []string{"tokens per day: 0/1000", "tokens per day (gpt-*) gpt-6: 0/300", "tokens per day (glm): 0/50"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, q := range quotas("in", infos, tc.results) {
				words := q.Words
				if q.Model != "" {
					words += " " + q.Model
				}
				got = append(got, fmt.Sprintf("%s: %d/%d", words, q.Used, q.Limit))
				if q.Instance != "in" || q.Remaining != max(0, q.Limit-q.Used-q.Reserved) {
					t.Errorf("got %+v", q)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// own is an instance of which a caller may see a consumer's rules.
type own struct {
	*instance
	consumer string
}

func (o own) RulesOfCaller(*http.Request) (consumer string, rules []RuleInfo) {
	return o.consumer, o.rules
}

// known is a store that tells whether what it reads is current.
type known struct {
	store.Counters
	current bool
}

func (k known) ReadKnown(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) (current bool, err error) {
	return k.current || e.Instance != "quota-b", k.Read(ctx, e, rules, results)
}

func TestQuotasOfACaller(t *testing.T) {
	a := mustRun(t, config(t, route("", limit("quota-a", "{k}"), limit("quota-b", "{k}")), "", ""))
	charge(t, a, "quota-a", "ann", 5, false)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	instances := []Instance{
		own{&instance{name: "quota-b", key: []string{"{k}"}, rules: testRules()}, "ann"},
		&instance{name: "quota-c", key: []string{"{k}"}, rules: testRules()}, // which does not know callers
		own{&instance{name: "quota-d", key: []string{"{k}"}}, "ann"},         // of which nothing is the caller's own
		own{&instance{name: "quota-a", key: []string{"{k}"}, rules: testRules()}, "ann"},
	}
	qs, current, err := a.QuotasOf(r, instances)
	if err != nil || !current || len(qs) != 4 || qs[0].Instance != "quota-b" || qs[2].Instance != "quota-a" || qs[2].Used != 5 || qs[2].Limit != 1000 || qs[2].ResetsAt == nil {
		t.Errorf("got %+v, current %t, %v", qs, current, err)
	}

	counters := a.shared.counters
	defer func() { a.shared.counters = counters }()
	for _, yes := range []bool{true, false} {
		a.shared.counters = known{counters, yes}
		if _, current, err := a.QuotasOf(r, instances); err != nil || current != yes {
			t.Errorf("the store says %t: got %t, %v", yes, current, err)
		}
	}
	a.shared.counters = errCounters{counters}
	if qs, _, err := a.QuotasOf(r, instances); !errors.Is(err, store.ErrUnavailable) || qs != nil {
		t.Errorf("got %+v, %v", qs, err)
	}
}

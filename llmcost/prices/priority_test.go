package prices

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// builtinBook is the built-in table on its last day, and what an operator says.
func builtinBook(t testing.TB, o Options) (*Book, time.Time) {
	t.Helper()
	l := Builtin()
	return mustBook(t, NewTable(l.AsOf, l.Rows), o), l.AsOf
}

func TestPriorityIsNeverBilledAsStandard(t *testing.T) {
	b, at := builtinBook(t, Options{})
	for _, tt := range []struct {
		provider, model string
		num, den        int64
		want            Status
	}{
		{"openai", "gpt-5.4", 2, 1, Calculated},
		{"openai", "gpt-5-mini", 9, 5, Calculated},
		{"openai", "gpt-5.6-sol", 2, 1, Estimated}, // its price has changed since that of priority was told
		{"openai", "gpt-5-pro", 2, 1, Estimated},
		{"azure", "gpt-5.4", 5, 2, Estimated},
		{"azure_ai", "gpt-4.1", 5, 2, Estimated},
		{"gemini", "gemini-3.5-flash-lite", 9, 5, Calculated},
		{"gemini", "gemini-3.6-flash", 9, 5, Estimated},
		{"vertex_ai", "gemini-2.5-pro", 9, 5, Estimated},
		{"groq", "llama-3.3-70b-versatile", 1, 1, Estimated}, // nothing is known of it
	} {
		c := Call{Provider: tt.provider, API: usage.OpenAIChat, Requested: tt.model, Usage: tokens(1000, 100_000), At: at}
		standard := b.Price(&c)
		c.Terms.ServiceTier = "priority"
		got := b.Price(&c)
		if standard.Status != Calculated || int64(got.USD)*tt.den != int64(standard.USD)*tt.num {
			t.Errorf("%s of %s: %s, standard %s (%s)", tt.model, tt.provider, got.USD, standard.USD, standard.Status)
		}
		if got.Status != tt.want || got.Approx != (tt.want == Estimated) {
			t.Errorf("%s of %s: status %s, approximate %v", tt.model, tt.provider, got.Status, got.Approx)
		}
		c.Hints, c.Terms = usage.Hints{ServiceTier: "priority"}, usage.Terms{}
		if worst := b.Estimate(&c, 1000, 100_000); worst.USD < got.USD {
			t.Errorf("%s of %s: at worst %s, but %s", tt.model, tt.provider, worst.USD, got.USD)
		}
	}
}

func TestNoModelAsksMoreForPriorityThanIsTaken(t *testing.T) {
	for _, r := range Builtin().Rows {
		p := pick(r, "", 0, Priority, Builtin().AsOf, nil)
		r.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
			standard, ok := r.Rates.Get(u, Standard, tier)
			if s == Priority && ok && rate > p.priorityMost().of(standard) {
				t.Errorf("%s of %s: %s", r.Key, r.Provider, u)
			}
			return true
		})
	}
}

func TestFactsOfAModelAreStatedAtItsPrice(t *testing.T) {
	s, err := builtinSupplement()
	if err != nil {
		t.Fatal(err)
	}
	known := familiesOf(Builtin().Rows)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		for name := range b.AtInput {
			found := false
			for _, provider := range b.Providers {
				for _, n := range known[family(provider)] {
					found = found || n.name == name && b.atInput(n.row, name)
				}
			}
			if !found {
				t.Errorf("%q: %s has another price by now, so that nothing is said of it", b.About, name)
			}
		}
	}
}

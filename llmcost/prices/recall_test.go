package prices

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestWhatWasFoundHoldsUntilPricesChange(t *testing.T) {
	var rows []*Row
	for i, in := range []string{"1e-6", "1e-4", "1e-2"} {
		r := row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":`+in+`,"output_cost_per_token":`+in+`}`)
		r.From = time.Date(2026, time.Month(i+1), 1, 0, 0, 0, 0, time.UTC)
		rows = append(rows, r)
	}
	rows[2].Until = rows[2].From.AddDate(0, 1, 0)
	table := NewTable(noon, rows)
	fresh := func() *Book {
		book, err := NewBook(table, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return book
	}
	rapid.Check(t, func(t *rapid.T) {
		kept := fresh()
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			days := rapid.IntRange(-10, 150).Draw(t, "days")
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, days).Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "nanoseconds")))
			c := Call{Provider: "openai", Requested: "m", Usage: tokens(1000, 10), At: at}
			if got, want := kept.Price(&c), fresh().Price(&c); got != want {
				t.Fatalf("at %s a call costs %+v, want %+v", at, got, want)
			}
		}
	})
}

func TestWhatWasFoundIsOfThatCallAlone(t *testing.T) {
	book := mustBook(t, someLiteLLM(t), Options{})
	names := []string{"", "gpt-5.4", "gpt-4o-mini", "claude-opus-5-20260724", "gemini-2.5-pro", "nobody's"}
	hosts := []string{"", "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "openrouter.ai:443"}
	rapid.Check(t, func(t *rapid.T) {
		c := Call{
			Provider: rapid.SampledFrom([]string{"", "", "openai", "anthropic", "Azure"}).Draw(t, "provider"),
			API:      rapid.SampledFrom([]usage.API{usage.OpenAIChat, usage.AnthropicMessages, usage.GeminiGenerate}).Draw(t, "api"),
			Host:     rapid.SampledFrom(hosts).Draw(t, "host"), Requested: rapid.SampledFrom(names).Draw(t, "requested"),
			Served: rapid.SampledFrom(names).Draw(t, "served"), Usage: tokens(1000, 10), At: noon,
		}
		want := book.Resolve(c.provider(), c.Served, c.Requested, c.At)
		if f := book.find(&c); f.match != want || f.provider != c.provider() {
			t.Fatalf("found %+v of %q, want %+v of %q", f.match, f.provider, want, c.provider())
		}
	})
}

func TestClientsCannotHaveMuchRemembered(t *testing.T) {
	r := row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":1e-6}`)
	every, err := NewOwn("any")
	if err != nil {
		t.Fatal(err)
	}
	if err := every.Set("input", "1"); err != nil {
		t.Fatal(err)
	}
	book := mustBook(t, NewTable(noon, []*Row{r}), Options{Unknown: every})
	long := Call{Requested: strings.Repeat("m", recallLongest+1), At: noon}
	if first := book.find(&long); first == book.find(&long) {
		t.Error("a long name was remembered")
	}
	const most = 10 * recallSets * recallWays
	for i := range most {
		c := Call{Requested: fmt.Sprint("model-", i), Usage: tokens(1_000_000, 0), At: noon}
		if cost := book.Price(&c); cost.USD != 1_000_000_000_000 {
			t.Fatalf("%s costs %s", c.Requested, cost.USD)
		}
	}
	kept := 0
	for i := range book.recall.sets {
		for j := range book.recall.sets[i] {
			if book.recall.sets[i][j].Load() != nil {
				kept++
			}
		}
	}
	if kept > recallSets*recallWays || kept == 0 {
		t.Errorf("%d of %d names are remembered", kept, most)
	}
}

func TestWhatIsRememberedHoldsNoBody(t *testing.T) {
	book := mustBook(t, someLiteLLM(t), Options{})
	body := strings.Repeat("gpt-5.4", 1000)
	c := Call{Requested: body[:len("gpt-5.4")], At: noon}
	if f := book.find(&c); unsafe.StringData(f.requested) == unsafe.StringData(body) {
		t.Error("the name is a part of the body")
	}
}

func TestPricingAllocatesNothing(t *testing.T) {
	book := mustBook(t, someLiteLLM(t), Options{})
	c := Call{Host: "api.openai.com", Requested: "gpt-5.4", Served: "gpt-5.4-2027-01-01", Usage: tokens(1000, 10), At: noon}
	if n := testing.AllocsPerRun(100, func() {
		book.Price(&c)
		book.Expect(&c, 1000, math.MaxInt32)
		book.Estimate(&c, 1000, 4096)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

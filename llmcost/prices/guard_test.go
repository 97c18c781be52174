package prices

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// usd is a price in USD per million.
func usd(t testing.TB, s string) money.Rate {
	t.Helper()
	r, err := money.ParseRatePerMillion(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// chat is a row of a chat model with prices in USD per million.
func chat(t testing.TB, key, input, output string) *Row {
	t.Helper()
	r := &Row{Key: key, Provider: "openai", Mode: "chat"}
	r.Rates.Set(Input, Standard, 0, usd(t, input))
	r.Rates.Set(Output, Standard, 0, usd(t, output))
	return r
}

func TestTheGuardTakesRowsThatCannotBeRight(t *testing.T) {
	set := func(u Unit, s Service, tier int, rate string) func(*Row) {
		return func(r *Row) { r.Rates.Set(u, s, tier, usd(t, rate)) }
	}
	tests := []struct {
		name   string
		change func(*Row)
		want   string // in the reason; empty = the row stays
	}{
		{"nothing wrong", func(*Row) {}, ""},
		{"as dear as the dearest", set(Reasoning, Standard, 0, "600"), ""},
		{"a price of a thousand tokens", set(Output, Standard, 0, "1001"), "more than $0.001"},
		{"cached reading dearer than input", set(CacheRead, Standard, 0, "1.01"), "reading from the cache"},
		{"cached reading as dear as input", set(CacheRead, Standard, 0, "1"), ""},
		{"writing at more than twice the input", set(CacheWrite5m, Standard, 0, "2.1"), "writing to the cache"},
		{"writing at twice the input", set(CacheWrite5m, Standard, 0, "2"), ""},
		{"an hour at what other vendors ask", set(CacheWrite1h, Standard, 0, "3"), ""},
		{"output at 20 times the input", set(Output, Standard, 0, "20"), ""},
		{"output at more", set(Output, Standard, 0, "21"), "output costs more"},
		{"images at more", func(r *Row) { r.Mode = "image_generation"; set(Output, Standard, 0, "21")(r) }, ""},
		{"a tier that is cheaper", func(r *Row) { r.Tiers = []Tier{{Above: 1000}}; set(Input, Standard, 1, "0.9")(r) }, "long prompts"},
		{"flex dearer", set(Input, Flex, 0, "1.1"), "input of flex"},
		{"batches dearer", set(Output, Batch, 0, "5"), "output of batch"},
		{"priority cheaper", set(Output, Priority, 0, "1"), "output of priority"},
		{"less than nothing", func(r *Row) { r.Rates.Set(Query, Standard, 0, -1) }, "less than nothing"},
		{"an hour of Claude's cache", func(r *Row) { r.Key = "claude-x"; set(CacheWrite1h, Standard, 0, "2")(r) }, ""},
		{"an hour of Claude's cache at less", func(r *Row) { r.Key = "claude-x"; set(CacheWrite1h, Standard, 0, "0.4")(r) }, "an hour"},
		{"at some hours", func(r *Row) {
			o := Timed{Windows: []Window{{0, 60, 0}}}
			o.Rates.Set(Input, Standard, 0, usd(t, "2000"))
			r.Timed = []Timed{o}
		}, "at some hours, input"},
		{"a fee of any height", func(r *Row) { r.Rates.Set(Request, Standard, 0, usd(t, "50000000")) }, ""},
		{"a model for nothing", func(r *Row) { r.Rates = Rates{}; r.Rates.Set(Input, Standard, 0, 0) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := chat(t, "m", "1", "4")
			tt.change(r)
			l := &Layer{Rows: []*Row{r}}
			Guard(l)
			if tt.want == "" {
				if len(l.Rows) != 1 || len(l.Faults) != 0 {
					t.Errorf("taken out: %v", l.Faults)
				}
				return
			}
			if len(l.Rows) != 0 || len(l.Faults) != 1 || !strings.Contains(l.Faults[0].Reason, tt.want) {
				t.Errorf("faults %v, want %q in one", l.Faults, tt.want)
			}
		})
	}
}

// The public table of 2026-08-01 has 20 rows with such errors, and 2,964 without.
func TestTheGuardOnAPublicTable(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "prices", "litellm_model_prices_2026-08-01.json"))
	wantRows := 2964
	if err != nil { // it does not stand beside every checkout: here are the 20 and two sound ones
		if data, err = os.ReadFile(filepath.Join("testdata", "guard.json")); err != nil {
			t.Fatal(err)
		}
		wantRows = 2
	}
	l, err := ParseLiteLLM(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Faults) != 0 {
		t.Fatalf("cannot be read: %v", l.Faults)
	}
	Guard(l)
	want := map[string]string{
		"claude-3-haiku-20240307":                             "for an hour",
		"claude-3-opus-20240229":                              "for an hour",
		"sambanova/Qwen2-Audio-7B-Instruct":                   "output costs more",
		"together_ai/Qwen/Qwen3-235B-A22B-Instruct-2507-tput": "output costs more",
		"azure_ai/jais-30b-chat":                              "$0.001",
		"watsonx/bigscience/mt0-xxl-13b":                      "$0.001",
		"watsonx/core42/jais-13b-chat":                        "$0.001",
	}
	for _, f := range l.Faults {
		why, ok := want[f.Key]
		if !ok && f.Provider == "wandb" {
			why, ok = "$0.001", true
			want[f.Key] = why
		}
		if !ok || !strings.Contains(f.Reason, why) {
			t.Errorf("unexpected: %s", f)
		}
	}
	if len(l.Faults) != 20 || len(want) != 20 {
		t.Errorf("%d rows are taken out, want 20", len(l.Faults))
	}
	if len(l.Rows) != wantRows {
		t.Errorf("%d rows are left, want %d", len(l.Rows), wantRows)
	}
}

// manyRows are a hundred models at $1 and $4.
func manyRows(t testing.TB) []*Row {
	t.Helper()
	rows := make([]*Row, 100)
	for i := range rows {
		rows[i] = chat(t, fmt.Sprintf("m%02d", i), "1", "4")
	}
	return rows
}

func TestARefreshMayNotMoveFar(t *testing.T) {
	tests := []struct {
		name   string
		change func([]*Row) []*Row
		held   int
		err    string
	}{
		{"as it was", func(r []*Row) []*Row { return r }, 0, ""},
		{"ten times dearer", func(r []*Row) []*Row { r[3] = chat(t, "m03", "10", "4"); return r }, 0, ""},
		{"more than ten times dearer", func(r []*Row) []*Row { r[3] = chat(t, "m03", "10.1", "4"); return r }, 1, ""},
		{"more than ten times cheaper", func(r []*Row) []*Row { r[3] = chat(t, "m03", "1", "0.39"); return r }, 1, ""},
		{"free", func(r []*Row) []*Row { r[3] = chat(t, "m03", "0", "0"); return r }, 1, ""},
		{"a new model at any price", func(r []*Row) []*Row { return append(r, chat(t, "new", "500", "900")) }, 0, ""},
		{"ten far", func(r []*Row) []*Row {
			for i := range 10 {
				r[i] = chat(t, r[i].Key, "0.001", "0.004")
			}
			return r
		}, 10, ""},
		{"another unit", func(r []*Row) []*Row {
			for i := range 11 {
				r[i] = chat(t, r[i].Key, "0.001", "0.004")
			}
			return r
		}, 0, "11 of 100 models"},
		{"seventy left", func(r []*Row) []*Row { return r[:70] }, 0, ""},
		{"fewer left", func(r []*Row) []*Row { return r[:69] }, 0, "only 69 of 100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			last := &Layer{Rows: manyRows(t)}
			next := &Layer{Rows: tt.change(manyRows(t))}
			n := len(next.Rows)
			held, err := guardRefresh(last, next)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(held) != tt.held || len(next.Faults) != tt.held || len(next.Rows) != n {
				t.Errorf("%d held, %d faults, %d rows; want %d, %d, %d", len(held), len(next.Faults), len(next.Rows), tt.held, tt.held, n)
			}
			tab := NewTable(time.Time{}, next.Rows)
			for _, f := range held {
				r := tab.Lookup(f.Provider, f.Key, time.Now())
				if in, _ := r.Rates.Base(Input); in != usd(t, "1") {
					t.Errorf("%s has moved to %d", f, in)
				}
			}
		})
	}
}

func TestAPriceThatWasFreeMayCostAnything(t *testing.T) {
	last := &Layer{Rows: []*Row{chat(t, "m", "0", "0")}}
	next := &Layer{Rows: []*Row{chat(t, "m", "2", "8")}}
	if held, err := guardRefresh(last, next); err != nil || len(held) != 0 {
		t.Errorf("held %v, %v", held, err)
	}
}

func TestAnAnnouncedPriceIsToldOnceItIsInForce(t *testing.T) {
	day := func(s string) time.Time {
		d, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	old, announced := chat(t, "m", "1", "4"), chat(t, "m", "2", "8")
	old.Until, announced.From = day("2027-01-01"), day("2027-01-01")
	l := &Layer{AsOf: day("2026-09-23"), Rows: []*Row{old, announced, chat(t, "other", "1", "4")}}
	own := chat(t, "m", "1", "4")
	own.Source = "the operator's file"
	for _, tt := range []struct {
		name  string
		at    string
		asOf  string
		above []*Row
		want  int
	}{
		{"before", "2026-12-31", "2026-09-23", nil, 0},
		{"from then on", "2027-01-01", "2026-09-23", nil, 1},
		{"collected since", "2027-02-01", "2027-01-02", nil, 0},
		{"pinned by another layer", "2027-02-01", "2026-09-23", []*Row{own}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := *l
			l.AsOf = day(tt.asOf)
			got := NewTable(l.AsOf, l.Rows, tt.above).Activated(&l, day(tt.at))
			if len(got) != tt.want {
				t.Errorf("%d rows, want %d", len(got), tt.want)
			}
		})
	}
	if got := NewTable(time.Time{}, l.Rows).Activated(&Layer{Rows: l.Rows}, day("2027-02-01")); got != nil {
		t.Errorf("of a layer without a day: %v", got)
	}
}

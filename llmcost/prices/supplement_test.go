package prices

import (
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// applied are rows after a supplement of one block.
func applied(t *testing.T, block string, rows ...*Row) ([]*Row, error) {
	t.Helper()
	s, err := parseSupplement([]byte(`{"blocks": [{"about": "a", "source": "s", "providers": ["openai"], ` + block + `}]}`))
	if err != nil {
		return nil, err
	}
	return s.apply(rows)
}

func TestASupplementSaysWhatItIsAbout(t *testing.T) {
	tests := []struct{ name, block, want string }{
		{"a misspelt member", `"model": ["*"]`, "model"},
		{"an unknown field", `"models": ["*"], "set": {"inputs": "1"}`, "inputs"},
		{"an unknown field of what lacks", `"models": ["*"], "lacking": {"moon": "1"}`, "moon"},
		{"a price that is none", `"models": ["*"], "set": {"input": "cheap"}`, "cheap"},
		{"an unknown service", `"models": ["*"], "services": {"express": "2"}`, "express"},
		{"the standard service", `"models": ["*"], "services": {"standard": "2"}`, "standard"},
		{"a fraction of nothing", `"models": ["*"], "services": {"batch": "1/0"}`, "1/0"},
		{"a decimal fraction", `"models": ["*"], "fast": "1.1"`, "1.1"},
		{"a fee as multiple of the input", `"models": ["*"], "of_input": {"request": "2"}`, "request"},
		{"an alias of nothing", `"alias": {"n": "nothing"}`, "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := applied(t, tt.block, chat(t, "m", "1", "4")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	s, err := parseSupplement([]byte(`{"blocks": [{"providers": ["openai"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.apply(nil); err == nil {
		t.Error("a block without a source is accepted")
	}
}

func TestASupplementChangesNoRatesThatRowsShare(t *testing.T) {
	a := chat(t, "a", "1", "4")
	b := *a
	b.Key = "b"
	rows, err := applied(t, `"models": ["a"], "set": {"input": "2"}, "services": {"batch": "1/2"}, "alias": {"c": "a"}`, a, &b)
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []struct{ input, batch string }{{"2", "0.5"}, {"1", ""}, {"2", "0.5"}} {
		rateIs(t, rows[i], Input, Standard, 0, want.input)
		rateIs(t, rows[i], Input, Batch, 0, want.batch)
	}
}

func TestAnotherTableKeepsWhatItSays(t *testing.T) {
	s, err := parseSupplement([]byte(`{"blocks": [{"about": "a", "source": "s", "providers": ["openai"], "models": ["m*"], "except": ["m-2"],
		"set": {"input": "9"}, "lacking": {"web_search": "0.01", "output": "9"}, "services": {"batch": "1/2"}, "fast": "2", "geo_us": "11/10",
		"max_output": 5, "add": {"new": {"input": "1"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	own := chat(t, "m", "1", "4")
	own.Rates.Set(Output, Batch, 0, usd(t, "3"))
	own.Fast = Ratio{3, 1}
	other, third := chat(t, "m-2", "1", "4"), chat(t, "m-3", "1", "4")
	if err := s.complete([]*Row{own, other, third}); err != nil {
		t.Fatal(err)
	}
	rateIs(t, own, Input, Standard, 0, "1")
	rateIs(t, own, Output, Standard, 0, "4")
	rateIs(t, own, Output, Batch, 0, "3")
	rateIs(t, own, Input, Batch, 0, "") // it has prices of batches
	rateIs(t, own, SearchMedium, Standard, 0, "10000")
	if own.Fast != (Ratio{3, 1}) || own.GeoUS != (Ratio{11, 10}) || own.MaxOutput != 5 {
		t.Errorf("the row %+v", own)
	}
	if other.Rates.Len() != 2 || other.MaxOutput != 0 {
		t.Errorf("the exception %+v", other)
	}
	rateIs(t, third, Output, Batch, 0, "2")
}

func TestAFactStatedWithAPriceHoldsForThatPrice(t *testing.T) {
	rows, err := applied(t, `"at_input": {"m": "1", "n": "1"}, "services": {"priority": "9/5"}`, chat(t, "m", "1", "4"), chat(t, "n", "2", "4"))
	if err != nil {
		t.Fatal(err)
	}
	rateIs(t, rows[0], Output, Priority, 0, "7.2")
	rateIs(t, rows[1], Output, Priority, 0, "")
}

func TestMultiplesOfARateAreRoundedToAFemtodollar(t *testing.T) {
	for text, want := range map[string]money.Rate{"1/2": 2, "1/3": 1, "5/3": 5, "2": 6, "11/10": 3} {
		m, err := parseRatio(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.of(3); got != want {
			t.Errorf("%s of 3 is %d, want %d", text, got, want)
		}
	}
}

// Every block is about something: a new version of the table may have renamed it.
func TestEveryBlockOfTheSupplementFindsItsModels(t *testing.T) {
	l, err := ParseGenAI(builtinJSON)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSupplement(supplementJSON)
	if err != nil {
		t.Fatal(err)
	}
	known := familiesOf(l.Rows)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		more, err := b.added(l.Rows)
		if err != nil {
			t.Errorf("%s: %v", b.About, err)
		}
		known.add(more)
		found := make(map[string]bool)
		for r := range b.chosen(known) {
			id, _ := identOf(r)
			found[id.name] = true
		}
		for name := range b.AtInput {
			if !found[name] {
				t.Errorf("%s: %q is not at that price", b.About, name)
			}
		}
		if len(b.Models) > 0 && len(found) == 0 {
			t.Errorf("%s: no models", b.About)
		}
	}
}

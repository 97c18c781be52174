package llmapp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// asked notes what is read of a store.
type asked struct {
	store.Counters
	reads []string
	err   error
}

func (a *asked) Read(_ context.Context, e store.Entity, _ []*store.Rule, results []store.Result) error {
	a.reads = append(a.reads, e.Instance+" "+e.Consumer)
	clear(results)
	results[0].Used = int64(len(a.reads))
	return a.err
}

// recentOf is an instance that one may ask of, whose counters are counted by asked.
func recentOf(t *testing.T) (a *App, read *asked, of func(consumer string, rules []RuleInfo) []Instance) {
	t.Helper()
	a = mustRun(t, config(t, route("", limit("recent", "{k}")), "", ""))
	counters := a.shared.counters
	read = &asked{Counters: counters}
	a.shared.counters = read
	t.Cleanup(func() { a.shared.counters = counters })
	return a, read, func(consumer string, rules []RuleInfo) []Instance {
		return []Instance{own{&instance{name: "recent", key: []string{"{k}"}, rules: rules}, consumer}}
	}
}

func TestWhoAsksAgainIsToldWhatWasRead(t *testing.T) {
	a, reads, of := recentOf(t)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	start := time.UnixMilli(1_800_000_000_000)
	var c Recent
	rules := testRules()
	for _, tt := range []struct {
		name     string
		at       time.Duration
		consumer string
		rules    []RuleInfo
		want     int64 // which reading it is told
		read     time.Duration
	}{
		{"the first", 0, "ann", rules, 1, 0},
		{"again", 0, "ann", rules, 1, 0},
		{"just before a second is over", time.Second - 1, "ann", rules, 1, 0},
		{"another consumer", time.Second - 1, "bob", rules, 2, time.Second - 1},
		{"other rules, as of another group", time.Second - 1, "ann", rules[:1], 3, time.Second - 1},
		{"after a second", time.Second, "ann", rules, 4, time.Second},
		{"the other, meanwhile", time.Second, "bob", rules, 2, time.Second - 1},
		{"a clock that is put back", 0, "ann", rules, 5, 0},
	} {
		qs, at, current, err := c.QuotasOf(a, r, of(tt.consumer, tt.rules), start.Add(tt.at))
		if err != nil || !current || len(qs) != len(tt.rules) || qs[0].Used != tt.want || !at.Equal(start.Add(tt.read)) {
			t.Errorf("%s: got %+v of %s, current %t, %v; want reading %d", tt.name, qs, at, current, err, tt.want)
		}
	}
	want := []string{"recent ann", "recent bob", "recent ann", "recent ann", "recent ann"}
	if !slices.Equal(reads.reads, want) {
		t.Errorf("read were %q, want %q", reads.reads, want)
	}
}

func TestWhatCouldNotBeReadIsNotToldAgain(t *testing.T) {
	a, reads, of := recentOf(t)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	var c Recent
	reads.err = store.ErrUnavailable
	if qs, _, _, err := c.QuotasOf(a, r, of("ann", testRules()), time.Time{}); err == nil || qs != nil {
		t.Errorf("got %+v, %v", qs, err)
	}
	reads.err = nil
	if qs, _, _, err := c.QuotasOf(a, r, of("ann", testRules()), time.Time{}); err != nil || len(qs) == 0 {
		t.Errorf("got %+v, %v", qs, err)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	a, _, of := recentOf(t)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	rules := testRules()
	var c Recent
	now := time.UnixMilli(1_800_000_000_000)
	ask := func(consumer string) {
		t.Helper()
		if qs, _, _, err := c.QuotasOf(a, r, of(consumer, rules), now); err != nil || len(qs) != len(rules) {
			t.Fatalf("got %+v, %v", qs, err)
		}
	}
	for i := range recentMost/len(rules) + 100 {
		ask(fmt.Sprint("app ", i))
	}
	if n := len(c.young); n != recentMost/len(rules) {
		t.Errorf("%d readings are kept", n)
	}
	for range 2 {
		now = now.Add(recently)
		ask("app")
	}
	if n := len(c.young) + len(c.old); n != 2 {
		t.Errorf("%d readings are kept of seconds that are over", n-1)
	}
}

package limit

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// replica follows one counter of a limit of 1000, as calls do.
type replica struct{ track }

func (rp *replica) rule() *rule { return &rule{store: &store.Rule{ID: "tokens per day"}} }

// admit is a call that is admitted, or refused, when so much is used.
func (rp *replica) admit(window, used, limit int64) int64 {
	return rp.admitted(rp.now(), window, used, 0, limit)
}

// admitted is a call that asked at an instant, when so much was used, and was charged.
func (rp *replica) admitted(at, window, used, charged, limit int64) int64 {
	m, doubt := rp.mark(rp.rule(), 0, window, used, limit), rp.since(at)
	rp.charges.Add(1)
	return m.look(window, used, charged, limit, doubt)
}

// settle is the end of a call.
func (rp *replica) settle(window, amount int64) int64 {
	m := rp.mark(rp.rule(), 0, window, 0, 1000)
	m.enter(window)
	rp.charges.Add(1)
	return m.charge(amount)
}

func TestThresholds(t *testing.T) {
	const day, next = 1_000_000, 2_000_000
	type step struct {
		name   string
		settle bool
		window int64
		amount int64 // charged, or used so far
		limit  int64 // 1000 unless set
		want   int64
	}
	look := func(used, want int64) step { return step{"look", false, day, used, 0, want} }
	charge := func(amount, want int64) step { return step{"charge", true, day, amount, 0, want} }
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"each line once", []step{look(0, 0), charge(799, 0), charge(1, 80), charge(100, 0), look(900, 0), charge(100, 100), charge(500, 0), look(1500, 0)}},
		{"both at once is the higher", []step{look(0, 0), charge(5000, 100), look(5000, 0)}},
		{"calls that are admitted together", []step{look(0, 0), look(0, 0), charge(450, 0), charge(450, 80)}},
		{"others charged, and this one too", []step{look(0, 0), charge(10, 0), look(810, 80), look(820, 0)}},
		{"others charged alone", []step{look(0, 0), look(850, 0), charge(10, 0), look(990, 0), charge(10, 100)}},
		{"a counter that is not known", []step{look(990, 0), charge(5, 0), charge(5, 100)}},
		{"what is given back", []step{look(0, 0), charge(790, 0), charge(-790, 0), charge(790, 0), charge(10, 80)}},
		{
			"the next window begins anew",
			[]step{look(0, 0), charge(900, 80), {"look", false, next, 0, 0, 0}, {"charge", true, next, 850, 0, 80}},
		},
		{
			"a call that ends in the next window",
			[]step{look(0, 0), {"charge", true, next, 850, 0, 80}, {"look", false, next, 850, 0, 0}},
		},
		{
			"a look at a window that is over",
			[]step{{"look", false, next, 0, 0, 0}, look(999, 0), {"charge", true, next, 800, 0, 80}},
		},
		{
			"a limit that is raised has lines of its own",
			[]step{look(0, 0), charge(900, 80), {"look", false, day, 900, 10_000, 0}, charge(7000, 0), charge(100, 80)},
		},
		{
			"a limit that is lowered below what is used",
			[]step{look(0, 0), charge(700, 0), look(700, 0), {"look", false, day, 700, 500, 0}, charge(1, 0)},
		},
		{
			"a window that slides is told of again after it was low",
			[]step{{"look", false, 0, 0, 0, 0}, {"charge", true, 0, 900, 0, 80}, {"look", false, 0, 700, 0, 0}, {"charge", true, 0, 150, 0, 0}, {"look", false, 0, 300, 0, 0}, {"charge", true, 0, 600, 0, 80}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rp replica
			for i, s := range tt.steps {
				var got int64
				if s.settle {
					got = rp.settle(s.window, s.amount)
				} else {
					limit := int64(1000)
					if s.limit != 0 {
						limit = s.limit
					}
					got = rp.admit(s.window, s.amount, limit)
				}
				if got != s.want {
					t.Fatalf("step %d, %s %d: %d percent, want %d", i, s.name, s.amount, got, s.want)
				}
			}
		})
	}
}

// However calls of several replicas follow each other, each tells of a line once at
// most, and a line that was crossed is told of by the time that all have looked again.
func TestThresholdIsToldByThoseThatCrossIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := make([]replica, rapid.IntRange(1, 3).Draw(t, "replicas"))
		told := make([]map[int64]int, len(replicas))
		for i := range told {
			told[i] = make(map[int64]int)
			replicas[i].admit(1, 0, 1000)
		}
		used := int64(0)
		note := func(i int, p int64) {
			if p != 0 {
				told[i][p]++
				if p == 100 {
					told[i][80] = max(told[i][80], 1) // the higher says it all
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			i := rapid.IntRange(0, len(replicas)-1).Draw(t, "replica")
			if rapid.Bool().Draw(t, "looks first") {
				note(i, replicas[i].admit(1, used, 1000))
			}
			n := rapid.Int64Range(1, 200).Draw(t, "amount")
			used += n
			note(i, replicas[i].settle(1, n))
		}
		for i := range replicas {
			note(i, replicas[i].admit(1, used, 1000))
		}
		for _, p := range percents {
			anybody := false
			for i := range told {
				if told[i][p] > 1 {
					t.Errorf("replica %d told of %d percent %d times", i, p, told[i][p])
				}
				anybody = anybody || told[i][p] > 0
			}
			if crossed := used >= part(1000, p); crossed != anybody {
				t.Errorf("used %d: %d percent told: %v", used, p, anybody)
			}
		}
	})
}

func TestLookWhileAChargeIsOnItsWay(t *testing.T) {
	for _, included := range []int64{0, 850} { // whether the store has it already
		var rp replica
		rp.admit(1, 0, 1000)
		told := int64(0)
		rp.track.settle(1)
		told += rp.settle(1, 700)
		told += rp.admit(1, included, 1000) // others have charged 150
		rp.track.settle(-1)
		told += rp.admit(1, 850, 1000)
		told += rp.admit(1, 850, 1000)
		if told != 80 {
			t.Errorf("with %d in the store: %d, want 80 once", included, told)
		}
	}
	(*track)(nil).settle(1) // where no rule is watched
}

// The store decides before its callers compare, and they do so in any order.
func TestLooksThatComeLate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		calls  func(rp *replica) (told int64)
		before int64 // what is told by then
	}{
		{"after others have been charged", func(rp *replica) (told int64) {
			at := rp.now()
			told += rp.settle(1, 500)
			told += rp.admitted(at, 1, 0, 0, 1000) // which had asked before
			return told + rp.settle(1, 300)
		}, 80},
		{"and find what others have used", func(rp *replica) (told int64) {
			at := rp.now()
			told += rp.settle(1, 10)
			return told + rp.admitted(at, 1, 810, 0, 1000)
		}, 80},
		{"of calls that are charged on admission", func(rp *replica) (told int64) {
			at := rp.now()
			told += rp.admitted(at, 1, 400, 400, 1000)     // the second
			return told + rp.admitted(at, 1, 0, 400, 1000) // the first
		}, 80},
		{"of calls that are charged on admission, short of a line", func(rp *replica) (told int64) {
			at := rp.now()
			told += rp.admitted(at, 1, 399, 400, 1000)
			told += rp.admitted(at, 1, 0, 399, 1000)
			return told + rp.settle(1, 1)
		}, 80},
		{"all the time, while what slides falls", func(rp *replica) (told int64) {
			told += rp.settle(1, 700)
			for range doubtsMost + 1 {
				at := rp.now()
				rp.settle(1, 0)
				told += rp.admitted(at, 1, 100, 0, 1000)
			}
			return told + rp.settle(1, 600)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rp replica
			rp.admit(1, 0, 1000)
			if told := tt.calls(&rp); told != tt.before {
				t.Errorf("told of %d percent, want %d", told, tt.before)
			}
		})
	}
}

func TestPartOfALimit(t *testing.T) {
	for _, tt := range []struct{ limit, percent, want int64 }{
		{1000, 80, 800},
		{1, 80, 1},
		{7, 80, 6},
		{0, 80, 0},
		{10, 100, 10},
		{math.MaxInt64, 100, math.MaxInt64},
		{math.MaxInt64, 80, 7378697629483820646},
	} {
		if got := part(tt.limit, tt.percent); got != tt.want {
			t.Errorf("%d percent of %d are %d, want %d", tt.percent, tt.limit, got, tt.want)
		}
	}
}

func TestTracksAreBoundedAndOutliveTheirUse(t *testing.T) {
	var ts tracks
	regular := store.Entity{Instance: "tier", Consumer: "regular"}
	first := ts.of(regular)
	for i := range 5 * tracksMost {
		ts.of(store.Entity{Instance: "tier", Consumer: fmt.Sprint(i)})
		if i%1000 == 0 && ts.of(regular) != first {
			t.Fatalf("one that calls regularly was forgotten after %d others", i)
		}
	}
	if n := len(ts.young) + len(ts.old); n > 2*tracksMost {
		t.Errorf("%d are remembered", n)
	}
}

func TestRulesOfManyConfigsAreForgotten(t *testing.T) {
	var tr track
	for i := range 10 * marksMost {
		tr.mark(&rule{store: &store.Rule{ID: fmt.Sprint(i)}}, 0, 1, 0, 1000)
	}
	if len(tr.marks) > marksMost {
		t.Errorf("%d rules are remembered", len(tr.marks))
	}
}

func TestOnlyBudgetsAreWatched(t *testing.T) {
	l := newTestLimiter(t, Config{Limits: parse(t, "5 requests per minute", "5 tokens per hour", "5 tokens per rolling 1h", "5 tokens per rolling 59m",
		"5 requests per day burst 9", "5 concurrent", "5 output_tokens per month shadow", "5 tokens per month")})
	var got []string
	for _, ru := range l.rules {
		if ru.watched() {
			got = append(got, ru.words)
		}
	}
	if want := []string{"tokens per hour", "tokens per rolling 1h", "tokens per month"}; !slices.Equal(got, want) {
		t.Errorf("%q are watched, want %q", got, want)
	}
}

func TestDollarsOfAnEventAreDecimal(t *testing.T) {
	if got, want := amountOf(USD, 1_500_000_000_000), money.USD(1_500_000_000_000).String(); got != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := amountOf(Tokens, 7); got != int64(7) {
		t.Errorf("%v", got)
	}
}

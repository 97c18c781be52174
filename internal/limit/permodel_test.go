package limit

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestOwnCountersAreNobodyElses(t *testing.T) {
	l := newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"a*"}, Limits: oneOf10, PerModel: true}, {Match: []string{"b*"}, Limits: oneOf10}}})
	b := l.blocks[0]
	ids := map[string]bool{b.rules[0].store.ID: true, l.blocks[1].rules[0].store.ID: true}
	for _, s := range []slot{{model: "a"}, {model: "other"}, {other: true}, {model: "~"}, {model: "a] x"}, {model: ""}} {
		ru := b.rulesOf(s)[0]
		if ids[ru.store.ID] {
			t.Errorf("%+v has the counter of another: %q", s, ru.store.ID)
		}
		ids[ru.store.ID] = true
		if ru != b.rulesOf(s)[0] || ru.words != "tokens per day (a*)" {
			t.Errorf("%+v: got %+v", s, ru)
		}
	}
}

func TestRulesOfModelsThatWereNotUsedAreForgotten(t *testing.T) {
	l := newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}})
	b := l.blocks[0]
	for i := range 5 * ownMost {
		b.rulesOf(slot{model: strings.Repeat("m", i%50) + string(rune('a'+i%26)) + strings.Repeat("n", i/50)})
	}
	if n := len(b.own.young) + len(b.own.old); n > 2*ownMost {
		t.Errorf("%d models are kept", n)
	}
}

// A model that came too late is known for a while, and no more of them than have counters.
func TestModelsThatShareAreRemembered(t *testing.T) {
	c := new(acquaintance)
	reset := noon.Add(24 * time.Hour)
	check := func(model string, now time.Time, own, ok bool) {
		t.Helper()
		if gotOwn, gotOK := c.knows(model, now); gotOwn != own || gotOK != ok {
			t.Errorf("%s: own %t, known %t, want %t and %t", model, gotOwn, gotOK, own, ok)
		}
	}
	c.meet("mine", reset, new(place))
	check("late", noon, false, false)
	c.miss("late", noon, reset)
	check("late", noon, false, true)
	check("later", noon, false, false) // another replica may have met it
	check("mine", noon, true, true)
	check("late", noon.Add(missFor), false, false) // a place may be free again
	c.miss("late", reset.Add(-time.Second), reset)
	check("late", reset, false, false) // all begin anew
	for i := range 3 * modelsMost {
		c.miss(strconv.Itoa(i), noon, reset)
		c.miss(strconv.Itoa(i), noon, reset)
	}
	if len(c.shared) != modelsMost {
		t.Errorf("%d are remembered", len(c.shared))
	}
	check(strconv.Itoa(3*modelsMost-1), noon, false, true)
	check("0", noon, false, false)
}

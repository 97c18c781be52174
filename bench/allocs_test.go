package main

import "testing"

// What a call allocates beyond what it does where reverse_proxy stands alone. The figures
// are exact but for what pools lose, so that a change which costs more is seen at once;
// whoever has a good reason raises the bound.
func TestAllocationsOfACall(t *testing.T) {
	for _, tc := range []struct {
		name string
		site Site
		most float64
	}{
		{"keys", Keys, 3},
		{"a limit of requests", Requests, 13},
		{"a limit of tokens", Tokens, 21},
		{"full", Full, 32},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &Scenario{Size: small}
			if n := allocations(t, tc.site, s) - allocations(t, Plain, s); n > tc.most {
				t.Errorf("a call takes %v allocations more than without, which should be at most %v", n, tc.most)
			}
		})
	}
}

// An event of a stream allocates nothing, whether usage is asked for by the client or by
// the gateway.
func TestAllocationsOfAnEvent(t *testing.T) {
	const few, many = 100, 1100
	for _, tc := range []struct {
		name  string
		asked bool
	}{{"asked for by the client", true}, {"asked for by the gateway", false}} {
		t.Run(tc.name, func(t *testing.T) {
			short := allocations(t, Full, &Scenario{Size: small, Events: few, Asked: tc.asked})
			long := allocations(t, Full, &Scenario{Size: small, Events: many, Asked: tc.asked})
			if each := (long - short) / (many - few); each > 0.01 {
				t.Errorf("an event takes %v allocations", each)
			}
		})
	}
}

// allocations is what a call takes on average once the chain is warm.
func allocations(t *testing.T, site Site, s *Scenario) float64 {
	t.Helper()
	c := newChain(t, site)
	c.set(s)
	for range 50 {
		c.call()
	}
	return testing.AllocsPerRun(200, c.call)
}

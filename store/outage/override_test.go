package outage

import (
	"errors"
	"maps"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// own gives the entity a limit of its own.
func own(t *testing.T, c store.Counters, r *store.Rule, limit int64) {
	t.Helper()
	if err := c.Override(t.Context(), entity, r.ID, &limit); err != nil {
		t.Fatal(err)
	}
}

// admits checks how many more calls of 1 a limit of the config, and the entity's own,
// let pass.
func admits(t *testing.T, c store.Counters, r *store.Rule, config int64, want int, limit int64) {
	t.Helper()
	for n := 0; ; n++ {
		k, results, err := reserve(c, false, take(r, config, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := results[0]; got.Limit != limit || got.Overridden != (limit != config) {
			t.Errorf("got %+v, want a limit of %d", got, limit)
		}
		if k == nil {
			if n != want {
				t.Errorf("%d were admitted, want %d", n, want)
			}
			return
		}
		if n > want {
			t.Fatalf("more than %d are admitted", want)
		}
	}
}

func TestOwnLimitsHoldInAnOutage(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(t *testing.T, c *Counters, f *fake)
	}{
		{"set here", func(t *testing.T, c *Counters, _ *fake) { own(t, c, day, 7) }},
		{"set here after a call", func(t *testing.T, c *Counters, _ *fake) {
			use(t, c, minute, 1)
			own(t, c, day, 7)
		}},
		{"set elsewhere, and told with an answer", func(t *testing.T, c *Counters, f *fake) {
			own(t, f.server, day, 7)
			use(t, c, day, 0)
		}},
		{"set here, and changed elsewhere", func(t *testing.T, c *Counters, f *fake) {
			own(t, c, day, 5)
			own(t, f.server, day, 7)
			use(t, c, day, 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, f := setup(t, newServer(nil), Options{})
			tt.set(t, c, f)
			cut(t, c, f)
			admits(t, c, day, 3, 7, 7)
			var results [2]store.Result
			if err := c.Read(t.Context(), entity, []*store.Rule{day, minute}, results[:]); err != nil {
				t.Fatal(err)
			}
			if results[0].Limit != 7 || !results[0].Overridden || results[1].Limit != 0 || results[1].Overridden {
				t.Errorf("read %+v", results)
			}
			heal(t, c, f)
			admits(t, c, day, 3, 0, 7)
			if n := used(t, f.server, day); n != 7 {
				t.Errorf("%d charged in the end, want 7", n)
			}
		})
	}
}

func TestOwnLimitsThatWereTakenAwayAreForgotten(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove func(t *testing.T, c *Counters, f *fake) error
	}{
		{"here", func(t *testing.T, c *Counters, _ *fake) error { return c.Override(t.Context(), entity, day.ID, nil) }},
		{"elsewhere", func(t *testing.T, _ *Counters, f *fake) error {
			return f.server.Override(t.Context(), entity, day.ID, nil)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, f := setup(t, newServer(nil), Options{})
			own(t, c, day, 7)
			use(t, c, day, 0)
			if err := tt.remove(t, c, f); err != nil {
				t.Fatal(err)
			}
			use(t, c, day, 0)
			cut(t, c, f)
			admits(t, c, day, 3, 3, 3)
		})
	}
}

func TestOwnLimitsOutliveAProcessInAnOutage(t *testing.T) {
	dir, s := t.TempDir(), newServer(nil)
	c, f := setup(t, s, Options{Dir: dir})
	own(t, c, day, 7)
	use(t, c, day, 2)
	cut(t, c, f)
	use(t, c, day, 1)
	written(t, c)
	crash(t, c)

	c, f = setup(t, s, Options{Dir: dir})
	f.set(errGone, false)
	c.Start()
	admits(t, c, day, 3, 4, 7)
	heal(t, c, f)
	if n := used(t, s, day); n != 7 {
		t.Errorf("%d charged in the end, want 7", n)
	}
}

func TestOwnLimitsAreSharedByReplicas(t *testing.T) {
	now, _ := midday()
	c, f := setup(t, newServer(now), Options{Replicas: 3, Now: now})
	own(t, c, day, 90)
	use(t, c, day, 30)
	cut(t, c, f)
	k, results, err := reserve(c, true, hold(day, 30, 20)) // its part of the 60 that are left
	if err != nil || k == nil || results[0].Limit != 90 || !results[0].Overridden {
		t.Fatalf("got %v, %v, %+v", k, err, results)
	}
	if k, results, err := reserve(c, true, hold(day, 30, 1)); k != nil || err != nil || results[0].Limit != 90 {
		t.Errorf("got %v, %v, %+v", k, err, results)
	}
}

func TestOwnLimitsAreToldWhereAllIsAdmitted(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{Policy: Allow})
	own(t, c, day, 7)
	cut(t, c, f)
	k, results, err := reserve(c, false, hold(day, 3, 100))
	if err != nil || k == nil || results[0].Limit != 7 || !results[0].Overridden {
		t.Errorf("got %v, %v, %+v", k, err, results)
	}
}

func TestEditsInAnOutageAreRefused(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	own(t, c, day, 7)
	use(t, c, day, 2)
	cut(t, c, f)
	limit := int64(100)
	_, listErr := c.Overridden(t.Context(), entity.Instance, "", 10)
	_, ofErr := c.OverridesOf(t.Context(), entity)
	for what, err := range map[string]error{
		"adjusting": c.Adjust(t.Context(), entity, store.Amount{Rule: day, Amount: 5}), "clearing": c.Clear(t.Context(), entity),
		"overriding": c.Override(t.Context(), entity, day.ID, &limit), "listing": listErr, "reading": ofErr,
	} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	admits(t, c, day, 3, 5, 7) // of nothing of it there is a trace
	heal(t, c, f)
	if n := used(t, f.server, day); n != 7 {
		t.Errorf("%d charged in the end, want 7", n)
	}
	if own, err := c.OverridesOf(t.Context(), entity); err != nil || own[day.ID] != 7 {
		t.Errorf("got %v, %v", own, err)
	}
}

func TestWhatWasClearedIsNotCountedInAnOutage(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	use(t, c, day, 5)
	cut(t, c, f)
	use(t, c, day, 5)
	heal(t, c, f)
	use(t, c, day, 5)
	if err := c.Clear(t.Context(), entity); err != nil {
		t.Fatal(err)
	}
	use(t, c, day, 2)
	cut(t, c, f)
	if n := used(t, c, day); n != 2 {
		t.Errorf("%d used, want 2", n)
	}
	admits(t, c, day, 3, 1, 3)
}

// FuzzReadOwn holds a record of limits to be read as it was written.
func FuzzReadOwn(f *testing.F) {
	g := sight{own: map[string]int64{"tokens per day": 7, "": 0}}
	f.Add(g.recordOwn(entity)[0][1:])
	f.Add((&sight{file: fileOld}).recordOwn(entity)[0][1:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, limits, err := readOwn(data)
		if err != nil {
			return
		}
		g := sight{own: limits, file: fileOld} // or none would be no record
		again, same, err := readOwn(g.recordOwn(e)[0][1:])
		if err != nil || again != e || !maps.Equal(same, limits) {
			t.Errorf("%+v %v becomes %+v %v (%v)", e, limits, again, same, err)
		}
	})
}

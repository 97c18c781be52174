package outage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// knows checks that limits hold in an outage by what was used before.
func (m *machine) knows(l *life) {
	if !l.c.Away() || l.c.Policy() != Local {
		return
	}
	now := m.now().UnixMilli()
	for _, e := range consumers {
		for _, r := range []*store.Rule{minute, day, paid} {
			var got [1]store.Result
			if err := l.c.Read(context.Background(), e, []*store.Rule{r}, got[:]); err != nil {
				m.rt.Fatal(err)
			}
			least := l.told[spotOf(e, r, now)]
			if got[0].Used < least {
				m.rt.Fatalf("%q of %q: believes %d used, want at least %d", r.ID, e.Consumer, got[0].Used, least)
			}
			if least <= 0 {
				continue
			}
			k, err := l.c.Reserve(context.Background(), &store.Reservation{
				Entity: e, Known: true, Lease: time.Hour, Takes: []store.Take{{Rule: r, Limit: least, Need: 1}},
			}, got[:])
			if k != nil || err != nil {
				m.rt.Fatalf("%q of %q: admitted past %d: %v", r.ID, e.Consumer, least, err)
			}
		}
	}
}

// heal lets all be handed over, and compares the server with what calls have used.
func (m *machine) heal() {
	if len(m.lives) > 1 {
		m.end()
		m.start(nil)
	}
	l := m.lives[0]
	for _, h := range l.open() {
		m.settle(l, h)
	}
	m.weather = fair
	clear(m.refused)
	for len(m.late) > 0 && rapid.Bool().Draw(m.rt, "late ones come before") {
		m.arrive(rapid.IntRange(0, len(m.late)-1).Draw(m.rt, "which"))
	}
	// The first round may do no more than take the directory.
	for round, end := 0, time.Now().Add(20*time.Second); round < 3 || l.c.Away() || l.c.Pending() > 0; round++ {
		m.attend(l)
		if err := m.tick(l); err != nil {
			m.rt.Fatal(err)
		}
		for _, h := range l.open() {
			m.settle(l, h)
		}
		_ = l.m.Ping(context.Background())
		if time.Now().After(end) {
			m.rt.Fatalf("%d pending, open: %v", l.c.Pending(), l.c.Away())
		}
	}
	for len(m.late) > 0 {
		m.arrive(0)
	}
	for _, h := range l.calls {
		h.unsure = false
		h.written()
	}
	m.gone(l)
	m.compare()
	_ = l.c.Close(context.Background())
}

func (m *machine) attend(l *life) {
	if l.c.isOpen.Load() {
		l.c.probe()
	} else {
		l.c.handOver()
	}
}

func (m *machine) compare() {
	all := maps.Clone(m.used)
	maps.Copy(all, m.most)
	requests, payments := make(map[store.Entity]int64), make(map[store.Entity]int64)
	for s := range all {
		if n := m.used[s]; n < m.least[s] || n > m.most[s] {
			m.rt.Errorf("%q of %q: %d charged, want %d to %d", s.rule, s.entity.Consumer, n, m.least[s], m.most[s])
		}
		switch s.rule {
		case minute.ID:
			requests[s.entity] += m.used[s]
		case paid.ID:
			payments[s.entity] += m.used[s]
		}
	}
	for e, n := range payments {
		if !m.torn && n > requests[e] {
			m.rt.Errorf("%q: tokens of %d calls with %d requests", e.Consumer, n, requests[e])
		}
	}
	for id, t := range m.takes {
		if t.holds && !m.errands[id].of.killed {
			m.rt.Errorf("a call of %q that has ended holds still", t.entity.Consumer)
		}
	}
}

// Whatever calls, outages, deaths and restarts follow each other: in the end each counter
// is what was used, but for what a death may take along.
func TestCrashesInOutages(t *testing.T) {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	property := func(rt *rapid.T) {
		dir := t.TempDir()
		now, step := midday()
		m := &machine{world: newWorld(rt, now), rt: rt, dir: dir, step: step, least: make(map[spot]int64), most: make(map[spot]int64)}
		m.o = Options{
			Policy: rapid.SampledFrom([]Policy{Local, Local, Allow}).Draw(rt, "policy"), Replicas: rapid.IntRange(0, 2).Draw(rt, "replicas"),
			Now: now, Failures: 2, Probe: 2, Timeout: 10 * time.Second,
		}
		m.start(nil)
		some := func() *life { return m.lives[rapid.IntRange(0, len(m.lives)-1).Draw(rt, "counters")] }
		call := func(*rapid.T) { m.call(some()) }
		settle := func(*rapid.T) {
			l := some()
			if open := l.open(); len(open) > 0 {
				m.settle(l, open[rapid.IntRange(0, len(open)-1).Draw(rt, "call")])
			}
		}
		tick := func(*rapid.T) {
			if l := some(); m.tick(l) != nil && len(m.lives) == 1 {
				rt.Fatal("the file is not written")
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"call": call, "call again": call, "settle": settle, "settle again": settle,
			"write": tick, "write again": tick,
			"a window ends": func(*rapid.T) { step(time.Minute) },
			"time passes":   func(*rapid.T) { step(settleFor) },
			"weather": func(*rapid.T) {
				m.weather = rapid.SampledFrom([]weather{fair, refuses, hangs, loses}).Draw(rt, "weather")
			},
			"refuse one": func(*rapid.T) { m.refused[rapid.SampledFrom(consumers).Draw(rt, "consumer")] = true },
			"serve all":  func(*rapid.T) { clear(m.refused) },
			"look":       func(*rapid.T) { m.attend(some()) },
			"arrive": func(*rapid.T) {
				if len(m.late) > 0 && m.weather == fair {
					m.arrive(rapid.IntRange(0, len(m.late)-1).Draw(rt, "which"))
				}
			},
			"kill":         func(*rapid.T) { m.kill(false) },
			"kill writing": func(*rapid.T) { m.kill(true) },
			"restart": func(*rapid.T) {
				told := m.end()
				l := m.start(nil)
				l.told, l.kept = maps.Clone(told), told
			},
			"take over": func(*rapid.T) {
				if len(m.lives) == 1 {
					m.start(m.lives[0])
				}
			},
			"give over": func(*rapid.T) {
				if len(m.lives) == 2 {
					m.leave(m.lives[0])
				}
			},
			"": func(*rapid.T) {
				for _, l := range m.lives {
					m.knows(l)
				}
			},
		})
		m.heal()
	}
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { rapid.Check(t, property) })
	}
}

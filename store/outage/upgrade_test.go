package outage

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// recordTold is the sight as versions wrote it that did not tell apart what was charged
// in an outage.
func (g *sight) recordTold(e store.Entity) []byte {
	b := appendString(appendString([]byte{kindTold}, e.Instance), e.Consumer)
	for _, c := range g.counters {
		b = append(appendString(b, c.id), byte(c.kind))
		for _, n := range [...]int64{c.used, c.held, c.at, c.reset, c.lapse} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

// A process that takes the place of one of a version before, in an outage, goes by all
// that the file says, reports nothing lost, and writes it in its own form.
func TestUpgradeInAnOutageGoesByTheFileOfTheVersionBefore(t *testing.T) {
	now, _ := midday()
	dir, f := t.TempDir(), &fake{server: newServer(now)}
	q := newQueue(1 << 20)
	j, err := openJournal(dir, 1<<20, q, now())
	if err != nil {
		t.Fatal(err)
	}
	at, ends := now().UnixMilli(), now().Add(11*time.Hour).UnixMilli()
	told := sight{counters: []counter{
		{id: day.ID, kind: store.KindCalendar, used: 87, held: 3, at: at, reset: ends, lapse: ends},
		{id: flight.ID, kind: store.KindNone, held: 2, at: at, lapse: ends},
	}}
	own := sight{own: map[string]int64{day.ID: 100}}
	q.add(entity, now(), []store.Amount{{Rule: day, Amount: 5}})
	err = errors.Join(j.log.Append(own.recordOwn(entity)[0]), j.log.Append(told.recordTold(entity)),
		q.all(j.log.Append), j.log.Sync(), j.log.Close(), j.dir.Close())
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range []string{"of this version", "after that one was killed"} {
		f.set(errGone, false)
		c := manual(t, f, Options{Dir: dir, Now: now}) // fails the test if it reports anything
		cut(t, c, f)
		if _, results, err := reserve(c, false, take(day, 1000, 1<<40), take(flight, 10, 0)); err != nil ||
			results[0].Used != 95 || results[0].Limit != 100 || results[1].Held != 2 {
			t.Errorf("%s: got %+v, %v, want 95 of 100 used with what is held, and 2 in flight", process, results, err)
		}
		write(t, c)
		killed(t, c)
	}
}

package memory

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Whatever a process does, whatever its disk does and wherever it is killed: the next
// one finds of each consumer the counters, and of each key and limit what it has been
// at one time since that was certain, which what was acknowledged is.
func TestWhatAProcessLeavesIsWhatItHad(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := newLives(r, t.TempDir)
		if version := rapid.ByteRange(0, recordVersion).Draw(r, "version"); version > 0 {
			l.former(version)
		}
		l.birth(false)
		defer func() { l.end() }()
		steps := map[string]func(){
			"adjust": l.adjust, "reserve": l.reserve, "settle": l.settle, "renew": l.renew, "clear": l.clear,
			"override": l.override, "put key": l.putKey, "rotate key": l.rotateKey, "delete key": l.deleteKey, "expire keys": l.expireKeys,
			"sync": l.sync, "rewrite": l.rewrite, "rewrite keys": l.rewriteKeys, "move": l.move, "turn": l.turn, "close": l.closing,
			"wait": func() { l.step(0, 40*time.Minute) }, "fault": l.fault, "die": l.die,
			"die soon": l.doom,
		}
		often := []string{"adjust", "reserve", "reserve", "settle", "settle", "sync", "sync", "put key", "delete key"}
		names := append(slices.Sorted(maps.Keys(steps)), often...)
		for range rapid.IntRange(1, 50).Draw(r, "steps") {
			steps[rapid.SampledFrom(names).Draw(r, "what")]()
			l.settleUp()
			if l.disk.Dead() {
				l.die()
			}
		}
		l.die()
	})
}

// settleUp notes what a step has done, and that no count is but what was used.
func (l *lives) settleUp() {
	l.noteAll()
	for _, e := range entities {
		if is := l.s.countsOf(e).at(l.now(), false)[perMonth.ID].Used; is != l.month[e] {
			l.Fatalf("%+v has used %d in this month, want %d", e, is, l.month[e])
		}
	}
}

func (l *lives) entity() store.Entity { return rapid.SampledFrom(entities).Draw(l.T, "entity") }

func (l *lives) adjust() { l.adjustIf(func(store.Entity) bool { return true }) }

func (l *lives) adjustIf(may func(store.Entity) bool) {
	e, amount := l.entity(), rapid.Int64Range(-20, 50).Draw(l.T, "amount")
	rule := rapid.SampledFrom(everyKind).Draw(l.T, "rule")
	if !may(e) {
		return
	}
	amounts := []store.Amount{{Rule: perMonth, Amount: amount}}
	if rule != perMonth {
		amounts = append(amounts, store.Amount{Rule: rule, Amount: amount})
	}
	if err := l.s.Adjust(context.Background(), e, amounts...); err != nil {
		l.Fatal(err)
	}
	l.month[e] += amount
	l.note(e)
}

// callTakes are those of a call: a request, tokens, and dollars that are charged when it
// begins.
func callTakes(charge int64) []store.Take {
	return []store.Take{
		{Rule: everyKind[0], Limit: 1 << 40, Need: 1, Charge: 1},
		{Rule: everyKind[6], Limit: 1 << 40, Need: 1, Hold: 10},
		{Rule: perMonth, Limit: 1 << 40, Need: 1, Charge: charge, Hold: 1},
		{Rule: everyKind[7], Limit: 1 << 40, Need: 1, Charge: 2},
	}
}

func (l *lives) reserve() {
	e, charge := l.entity(), rapid.Int64Range(0, 9).Draw(l.T, "charge")
	takes := callTakes(charge)
	k, err := l.s.Reserve(context.Background(), &store.Reservation{
		Entity: e, Lease: time.Minute, Takes: takes, Known: rapid.Bool().Draw(l.T, "known"),
	}, make([]store.Result, len(takes)))
	switch {
	case errors.Is(err, store.ErrFull):
	case err != nil:
		l.Fatal(err)
	case k != nil: // it may have a limit of its own
		l.open = append(l.open, k)
		l.month[e] += charge
	}
}

func (l *lives) settle() {
	if len(l.settled) > 0 && rapid.IntRange(0, 4).Draw(l.T, "twice") == 0 {
		l.s.Settle(rapid.SampledFrom(l.settled).Draw(l.T, "settled"), []int64{1, 100, 100, 100})
		return
	}
	if len(l.open) == 0 {
		return
	}
	k := l.open[0]
	l.open, l.settled = l.open[1:], append(l.settled, k)
	actual := rapid.Int64Range(0, 20).Draw(l.T, "actual")
	l.month[k.Entity] += actual - k.Lines[2].Charged
	l.s.Settle(k, []int64{rapid.Int64Range(0, 1).Draw(l.T, "requests"), actual, actual, actual})
}

func (l *lives) renew() {
	if err := l.s.Renew(context.Background(), append(l.open, l.settled...), time.Minute); err != nil {
		l.Fatal(err)
	}
}

func (l *lives) clear() {
	e := l.entity()
	if err := l.s.Clear(context.Background(), e); err != nil {
		l.Fatal(err)
	}
	l.month[e] = 0
}

func (l *lives) override() {
	var limit *int64
	if n := rapid.Int64Range(-1, 3).Draw(l.T, "limit"); n >= 0 {
		n <<= 20
		limit = &n
	}
	rule := rapid.SampledFrom([]*store.Rule{perMonth, everyKind[0]}).Draw(l.T, "rule")
	err := l.s.Override(context.Background(), l.entity(), rule.ID, limit)
	l.noteAll()
	if !l.fails("setting a limit", err) {
		l.countsCertain(l.marks())
	}
}

// keysDone is told what has become of a change of a key. That there is none of that id is
// an answer, too, on which somebody builds.
func (l *lives) keysDone(what, id string, err error) {
	l.noteAll()
	switch {
	case errors.Is(err, store.ErrNoKey): // it is no failure of the disk
		if !l.off {
			l.keys[id].certain(l.keys[id].now())
		}
	case !l.fails(what, err):
		l.keysCertain(l.marks())
	case !errors.Is(err, store.ErrUnavailable):
		l.Fatalf("%s: %v", what, err)
	}
}

func (l *lives) secret() store.KeyHash {
	l.secrets++
	return sha256.Sum256([]byte{byte(l.secrets), byte(l.secrets >> 8)})
}

func (l *lives) putKey() {
	id := rapid.SampledFrom(keyNames).Draw(l.T, "id")
	k := l.s.keyOfID(id)
	if k.ID == "" {
		k = store.Key{ID: id, Hash: l.secret()}
	}
	k.Disabled = rapid.Bool().Draw(l.T, "disabled")
	k.Expires = time.Time{}
	if rapid.Bool().Draw(l.T, "expires") {
		k.Expires = l.clock.Now().Add(5*time.Minute - store.KeepExpired).UTC()
	}
	_, err := l.s.Keys().Put(context.Background(), k)
	l.keysDone("storing a key", id, err)
}

func (l *lives) rotateKey() {
	k := l.s.keyOfID(rapid.SampledFrom(keyNames).Draw(l.T, "id"))
	if k.ID == "" {
		return
	}
	k.Previous, k.Until = k.Hash, l.clock.Now().Add(time.Hour).UTC()
	k.Hash = l.secret()
	_, err := l.s.Keys().Put(context.Background(), k)
	l.keysDone("rotating a key", k.ID, err)
}

func (l *lives) deleteKey() {
	id := rapid.SampledFrom(keyNames).Draw(l.T, "id")
	err := l.s.Keys().Delete(context.Background(), id)
	l.keysDone("deleting a key", id, err)
}

func (l *lives) expireKeys() {
	l.step(0, 20*time.Minute)
	ids, err := l.s.Keys().Expire(context.Background())
	if err == nil && len(ids) == 0 {
		return // nothing is told, so that nothing need be certain
	}
	l.keysDone("forgetting keys", "", err)
}

func (l *lives) sync() {
	m := l.marks()
	if !l.fails("syncing", l.s.Sync()) {
		l.countsCertain(m)
		l.keysCertain(m)
	}
}

// rewrite writes the file anew, while calls go on.
func (l *lives) rewrite() {
	if l.s.journal == nil {
		return
	}
	m := l.marks()
	l.during = func() {
		if rapid.Bool().Draw(l.T, "meanwhile") {
			l.adjustIf(l.free)
		}
	}
	err := l.s.journal.rewrite()
	l.during = nil
	if !l.fails("rewriting", err) {
		l.countsCertain(m)
	}
}

func (l *lives) rewriteKeys() {
	k := &l.s.keys
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.log == nil {
		return
	}
	m := l.marks()
	if !l.fails("rewriting keys", k.rewrite(k.log)) {
		l.keysCertain(m)
	}
}

// move gives the store another directory.
func (l *lives) move() {
	if l.off {
		return
	}
	to := l.temp()
	if rapid.Bool().Draw(l.T, "dies") {
		l.doom()
	} else if rapid.Bool().Draw(l.T, "fails") {
		l.faulty = true
		l.disk.Fail(rapid.IntRange(0, 800).Draw(l.T, "room"), syscall.ENOSPC)
	}
	m := l.marks()
	_, err := l.s.Persist(to)
	l.pause()
	if rapid.Bool().Draw(l.T, "mended") && !l.disk.Dead() {
		defer l.mend()
	}
	switch {
	case l.disk.Dead():
		// Who starts it again finds all in the one directory, or in the other.
		if _, err := os.Stat(filepath.Join(l.dir, logName)); err != nil {
			l.dir = to
		} else if _, err := os.Stat(filepath.Join(l.dir, keysName)); err != nil {
			l.dir = to
		}
		if l.dir == to {
			l.countsCertain(m)
			l.keysCertain(m)
		}
	case !l.fails("moving", err):
		l.dir = to
		l.countsCertain(m)
		l.keysCertain(m)
	}
}

// turn has nothing written any more, or again what this process knows.
func (l *lives) turn() {
	if !l.off {
		l.sync()
		if !l.faulty && !l.disk.Dead() && !l.fails("turning it off", l.s.Close()) {
			l.off = true
		}
		return
	}
	m := l.marks()
	_, err := l.s.Persist(l.dir)
	l.pause()
	if !l.fails("turning it on", err) {
		l.off = false
		l.countsCertain(m)
		l.keysCertain(m)
	}
}

// closing ends a process in good order, if the disk is.
func (l *lives) closing() {
	m := l.marks()
	if !l.fails("closing", l.s.Close()) {
		l.countsCertain(m)
		l.keysCertain(m)
	}
	l.die()
}

func (l *lives) fault() {
	l.faulty = !l.faulty
	switch {
	case l.faulty && rapid.Bool().Draw(l.T, "syncs"):
		l.disk.FailSyncs(syscall.EIO)
	case l.faulty:
		l.disk.Fail(rapid.IntRange(0, 500).Draw(l.T, "room"), rapid.SampledFrom([]error{syscall.ENOSPC, syscall.EIO}).Draw(l.T, "fault"))
	default:
		l.mend()
	}
}

func (l *lives) mend() {
	l.faulty = false
	l.disk.Fail(0, nil)
	l.disk.FailSyncs(nil)
}

// doom has the process die soon, in the middle of a write or between two.
func (l *lives) doom() {
	if rapid.Bool().Draw(l.T, "between") {
		l.disk.KillBetween(rapid.IntRange(0, 30).Draw(l.T, "acts"))
	} else {
		l.disk.Kill(rapid.IntRange(0, 1200).Draw(l.T, "bytes"))
	}
}

// die ends a process, and starts another.
func (l *lives) die() {
	l.end()
	l.faulty = false
	cut := rapid.Bool().Draw(l.T, "power")
	if cut {
		if err := l.disk.CutPower(func(what string, least, most int) int {
			return rapid.IntRange(least, most).Draw(l.T, what)
		}); err != nil {
			l.Fatal(err)
		}
	}
	l.disk.Restart()
	switch rapid.IntRange(0, 3).Draw(l.T, "clock") {
	case 0:
		l.step(-3*time.Hour, 3*time.Hour)
	case 1:
		l.step(0, time.Minute)
	}
	l.birth(cut)
}

// birth starts a process, some of which die at once.
func (l *lives) birth(cut bool) {
	for range 2 {
		if rapid.Bool().Draw(l.T, "dies at once") {
			l.doom()
		}
		err := l.begin()
		if !l.disk.Dead() {
			if err != nil {
				l.Fatal(err)
			}
			l.disk.Restart()
			l.check(cut)
			return
		}
		l.end()
		l.disk.Restart()
	}
	if err := l.begin(); err != nil {
		l.Fatal(err)
	}
	l.check(cut)
}

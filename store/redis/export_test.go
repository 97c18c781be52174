package redis

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// isolated is a store whose server is not there, and what it takes for the time.
type isolated struct {
	*Store
	at atomic.Int64 // Unix milliseconds
}

// unreachable returns such a store. It has a number all the same.
func unreachable(t testing.TB) *isolated {
	s := new(isolated)
	now := func() time.Time { return time.UnixMilli(s.at.Load()) }
	s.Store = New(Options{Addresses: []string{"127.0.0.1:1"}, Timeout: time.Millisecond, Now: now})
	s.replicas.former.Store(&replica{number: 3, base: 1, at: time.Now()})
	t.Cleanup(func() {
		s.work.stop()
		_ = s.client.Close()
	})
	return s
}

func must(w *store.Window, err error) *store.Window {
	if err != nil {
		panic(err)
	}
	return w
}

func settled(s *isolated, e store.Entity, r *store.Rule, at time.Time, held, used int64) {
	t := &ticket{deadline: 1000}
	t.Entity, t.Private = e, t
	t.Lines = []store.Line{{Rule: r, Held: held}}
	s.at.Store(at.UnixMilli())
	s.Settle(&t.Ticket, []int64{used})
}

func TestExportsAreRestoredAsTheyWere(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := unreachable(t)
	at := time.UnixMilli(1_700_000_000_000)
	for i, w := range []*store.Window{
		must(store.Calendar("day", berlin)), must(store.Fixed(time.Minute)), must(store.Rolling(time.Hour)),
		must(store.Bucket(time.Second)), store.None(),
	} {
		r := &store.Rule{ID: w.String(), Window: w, Refill: int64(i)}
		settled(s, store.Entity{Instance: "i", Consumer: "c"}, r, at, 7, int64(i)+1)
		settled(s, store.Entity{Instance: "i"}, r, at, 7, 1<<62)
	}
	first := s.Export()
	again := s.Export()
	other := unreachable(t)
	if err := other.Restore(first); err != nil {
		t.Fatal(err)
	}
	for _, got := range [][][]byte{again, other.Export()} {
		if len(first) != 2 || len(got) != len(first) {
			t.Fatalf("%d and %d records", len(first), len(got))
		}
		all := fmt.Sprintf("%s", got)
		for _, data := range first {
			if !strings.Contains(all, string(data)) {
				t.Errorf("%s is not in %s", data, all)
			}
		}
	}
	if s.Pending() == 0 || other.Pending() == 0 {
		t.Errorf("%d and %d pending", s.Pending(), other.Pending())
	}
}

// What cannot be sent is bounded by time and rules, not by calls.
func TestWhatWaitsForLongIsAddedUp(t *testing.T) {
	s := unreachable(t)
	e := store.Entity{Instance: "i", Consumer: "c"}
	r := &store.Rule{ID: "fixed", Window: must(store.Fixed(time.Hour))}
	short := &store.Rule{ID: "short", Window: must(store.Fixed(10 * time.Second))}
	start := time.UnixMilli(1_700_000_000_000).Truncate(time.Hour)
	const calls, minutes = 10_000, 5
	for i := range calls {
		at := start.Add(time.Duration(i) * minutes * time.Minute / calls)
		settled(s, e, r, at, 7, 3)
		settled(s, e, short, at, 1, 1)
	}
	// Of each minute one, and of the short windows one each; those before folding began.
	if n := s.Pending(); n > foldFrom+minutes+minutes*6 {
		t.Errorf("%d calls wait as %d changes", calls, n)
	}
	var used, held, shortly int64
	for _, data := range s.Export() {
		var rec record
		if err := json.Unmarshal(data, &rec); err != nil {
			t.Fatal(err)
		}
		for _, o := range rec.Ops {
			for _, l := range o.Lines {
				if l.Rule.ID == "short" {
					shortly += l.Used
					continue
				}
				used += l.Used
				for _, p := range l.Release {
					held += p[1]
				}
			}
		}
	}
	if used != 3*calls || held != 7*calls || shortly != calls {
		t.Errorf("used %d, held %d, shortly %d", used, held, shortly)
	}
}

func TestRecordsThatCannotBeAreLeftOut(t *testing.T) {
	s := unreachable(t)
	good := `{"i":"i","r":1,"n":5,"o":[{"a":1,"l":[{"r":{"i":"x","k":"f","l":1000},"u":1}]}]}`
	for _, bad := range []string{
		``, `null`, `[]`, `{}`, `{"n":-1}`, `{"n":1,"r":-1}`, `{"n":1,"r":5000}`, `{"n":1,"g":"0123456789ABCDEF"}`, `{"n":1,"g":"0 q"}`, good[:len(good)-1],
		strings.Replace(good, `"k":"f"`, `"k":"q"`, 1), strings.Replace(good, `1000`, `1`, 1),
		strings.Replace(good, `"k":"f"`, `"k":"c","u":"day","z":"Nowhere/There"`, 1),
		strings.Replace(good, `"k":"f"`, `"k":"c","u":"fortnight","z":"UTC"`, 1),
		`{"n":1,"o":[` + strings.Repeat(`{},`, opsMost+callsMost) + `{}]}`,
	} {
		if err := s.Restore([][]byte{[]byte(bad)}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if n := s.Pending(); n != 0 {
		t.Errorf("%d pending", n)
	}
	if err := s.Restore([][]byte{[]byte(good)}); err != nil || s.Pending() == 0 {
		t.Errorf("%v, %d pending", err, s.Pending())
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"i":"i","c":"c","r":1,"n":5,"o":[{"a":1,"l":[{"r":{"i":"x","k":"f","l":1000},"u":1,"b":[[0,1]],"h":[[5,6]]}]}],"q":[{},{"l":5,"t":[{"r":{"i":"y","k":"c","u":"day","z":"UTC"},"c":1,"h":2,"m":3}]}]}`))
	f.Add([]byte(`{"i":"i","g":"0123456789abcdef","n":5,"o":[{"a":1,"l":[{"r":{"i":"x","k":"n"}}]}]}`))
	f.Add([]byte(`{"n":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := unreachable(t)
		if s.Restore([][]byte{data}) != nil {
			return
		}
		for _, rec := range s.Export() {
			if err := unreachable(t).Restore([][]byte{rec}); err != nil {
				t.Errorf("%s is exported and not taken back: %v", rec, err)
			}
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add("A 1700000000000 1:5 0 1700000000000 5 0 7 0 1700000000001 1 2 3 4")
	f.Add("D 1700000000000 1 0 1 2 3 4 0 0 1 2 3 4")
	f.Add("V 1700000000000 1\n1700000000000 5 0 60 1700000060000 7")
	f.Add("V 1700000000000 0\n")
	f.Add("F 17")
	f.Add("T 1700000000000")
	f.Add("")
	r := &store.Rule{ID: "r", Window: must(store.Fixed(time.Minute))}
	f.Fuzz(func(t *testing.T, reply string) {
		s := unreachable(t)
		e := store.Entity{Instance: "i"}
		sh := s.shard(e)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		q := s.queue(sh, e)
		b := &batch{asked: []bool{true, false}, sent: time.UnixMilli(0)}
		calls, most := 2, int64(5)
		if strings.HasPrefix(reply, "V") { // is of a call alone, that asked for no range
			calls, most = 1, 0
		}
		for range calls {
			b.calls = append(b.calls, &call{
				takes:   []store.Take{{Rule: r, Limit: 10, Need: 1, Charge: 1, Hold: 1, HoldMost: most}},
				results: make([]store.Result, 1), done: make(chan struct{}), lease: time.Minute,
			})
		}
		for _, c := range b.calls[1:] {
			c.abandon()
		}
		done := b.calls[0].done
		r, err := b.read(reply)
		if err != nil || r.verdict == otherTime {
			return
		}
		s.complete(q, b, &r)
		select {
		case <-done:
		default:
			if len(q.calls) != 1 {
				t.Errorf("%q leaves a call without an answer", reply)
			}
		}
	})
}

package outage

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// A queue is doubted until another has read its file, and no longer than one may.
func TestQueuesThatNoneGoesOnWithAreForgotten(t *testing.T) {
	for _, tc := range []struct {
		name  string
		dirs  []string // of counters, each in the place of the one before
		ended int      // how many close, the first ones
		lazy  bool     // the last begin after that
		want  int      // queues
	}{
		{name: "to the same directory", dirs: []string{"a", "a"}, ended: 1, want: 1},
		{name: "to the same directory, after", dirs: []string{"a", "a"}, ended: 1, lazy: true, want: 1},
		{name: "to none", dirs: []string{"a", ""}, ended: 1, want: 1},
		{name: "to none, after", dirs: []string{"a", ""}, ended: 1, lazy: true, want: 1},
		{name: "to another", dirs: []string{"a", "b"}, ended: 1, want: 1},
		{name: "from none", dirs: []string{"", "a"}, ended: 1, want: 1},
		{name: "there and back", dirs: []string{"a", "b", "a"}, ended: 2, want: 1},
		{name: "there and back, after", dirs: []string{"a", "b", "a"}, ended: 2, lazy: true, want: 1},
		{name: "while the first is in use", dirs: []string{"a", "b"}, want: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, _ := midday()
			dirs := map[string]string{"": "", "a": t.TempDir(), "b": t.TempDir()}
			f := &fake{server: newServer(now)}
			f.set(errGone, false)
			var all []*Counters
			for _, dir := range tc.dirs {
				o := Options{Dir: dirs[dir], Now: now, Failures: 1, Timeout: 10 * time.Millisecond}
				if len(all) > 0 {
					o.Before = all[len(all)-1]
				}
				all = append(all, New(func(string) Remote { return f }, o))
			}
			last := all[len(all)-1]
			for _, c := range all {
				if c != last || !tc.lazy {
					c.once.Do(c.begin)
				}
				if c != last {
					use(t, c, day, 1)
				}
			}
			for _, c := range all[:tc.ended] {
				_ = c.Close(t.Context()) // what has no directory is lost
			}
			last.once.Do(last.begin)
			kept := tc.dirs[0] == tc.dirs[len(tc.dirs)-1] || tc.ended == 0
			if behind := last.behind(entity); behind != kept {
				t.Errorf("behind is %t, want %t", behind, kept)
			}
			if last.o.Dir != "" {
				write(t, last) // takes the directory, if it could not before
			}
			if n := len(*last.queues.Load()); n != tc.want {
				t.Errorf("%d queues, want %d", n, tc.want)
			}
			for _, c := range all {
				_ = c.Close(t.Context())
			}
			if n := len(*last.queues.Load()); n > 1 {
				t.Errorf("%d queues in the end", n)
			}
		})
	}
}

// After a reload in an outage to where none reads what the counters before have left, the
// remote's answers are gone by again once it is back.
func TestAnswersAreGoneByAfterAReloadToNoDirectory(t *testing.T) {
	now, step := midday()
	f := &fake{server: newServer(now)}
	old := manual(t, f, Options{Dir: t.TempDir(), Now: now})
	f.set(errGone, false)
	use(t, old, day, 40)
	c := manual(t, f, Options{Now: now, Before: old})
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := used(t, c, day); n != 40 {
		t.Errorf("%d used in the outage, want 40", n)
	}
	f.set(nil, false)
	wait(t, "the end of the outage", func() bool { c.probe(); return !c.Away() })
	step(24 * time.Hour)
	if err := f.Adjust(t.Context(), entity, store.Amount{Rule: day, Amount: 70}); err != nil { // by others
		t.Fatal(err)
	}
	use(t, c, day, 7)
	f.set(errGone, false)
	use(t, c, minute, 1)
	if n := used(t, c, day); n != 77 {
		t.Errorf("%d used in the next outage, want 77", n)
	}
	_ = c.Close(t.Context()) // the minute is lost, as it has no directory
}

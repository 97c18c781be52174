package prices

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestAFileIsGuardedOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	o := SetOptions{Locations: []string{path}, Dir: filepath.Join(t.TempDir(), "kept")}
	write(t, path, table("m", "1e-6"), now)
	s, _ := newSet(t, o)
	if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
		t.Errorf("something was written before it ran: %v", err)
	}
	s.Refresh(t.Context())

	steps := []struct {
		name   string
		change func()
		price  string
		held   int
		err    bool
	}{
		{"as it was", func() {}, "1", 0, false},
		{"a price that slipped", func() { write(t, path, table("m", "5e-4"), now.Add(1)) }, "1", 1, false},
		{"still", func() {}, "1", 1, false},
		{"half written", func() { write(t, path, table("m", "1e-6")[:50], now.Add(2)) }, "1", 0, true},
		{"gone", func() { _ = os.Remove(path) }, "1", 0, true},
		{"another price", func() { write(t, path, table("m", "4e-6"), now.Add(3)) }, "4", 0, false},
		{"which is the one that others are compared with", func() { write(t, path, table("m", "31e-6"), now.Add(4)) }, "31", 0, false},
	}
	for _, step := range steps {
		step.change()
		s, r := newSet(t, o)
		if got := inputOf(t, s, "m"); got != step.price {
			t.Errorf("%s: the price is %s, want %s", step.name, got, step.price)
		}
		reports := r.take()
		if len(reports) != 1 || reports[0].Layer == nil || (reports[0].Err != nil) != step.err {
			t.Fatalf("%s: reports %+v", step.name, reports)
		}
		if held := reports[0].Layer.Held; len(held) != step.held {
			t.Errorf("%s: held %v", step.name, held)
		}
		s.Refresh(t.Context())
		if got := inputOf(t, s, "m"); got != step.price {
			t.Errorf("%s: then the price is %s, want %s", step.name, got, step.price)
		}
	}
}

func TestACopyThatCannotBeKeptIsInUse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.json")
	write(t, path, table("m", "1e-6"), time.Now())
	s, r := newSet(t, SetOptions{Locations: []string{path}, Dir: filepath.Join(path, "no-directory")})
	r.take()
	s.Refresh(t.Context())
	if got := r.take(); len(got) != 1 || got[0].Err == nil || got[0].Layer == nil {
		t.Errorf("reports %+v", got)
	}
	s.Refresh(t.Context())
	if got := r.take(); len(got) != 0 {
		t.Errorf("told again: %+v", got)
	}
	if got := inputOf(t, s, "m"); got != "1" {
		t.Errorf("the price is %s", got)
	}
}

func TestHeldPricesAreToldEveryDay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	write(t, path, table("m", "1e-6"), now)
	s, r := newSet(t, SetOptions{Locations: []string{path}, Now: func() time.Time { return now }})
	write(t, path, table("m", "5e-4"), now.Add(1))
	r.take()
	for _, step := range []struct {
		name          string
		after         time.Duration
		told, newCopy bool
	}{
		{"at once", 0, true, true},
		{"not again", 23 * time.Hour, false, false},
		{"a day later", time.Hour, true, false},
		{"not again that day", time.Hour, false, false},
		{"the next day", 23 * time.Hour, true, false},
	} {
		now = now.Add(step.after)
		s.Refresh(t.Context())
		got := r.take()
		if len(got) == 1 != step.told {
			t.Fatalf("%s: reports %+v", step.name, got)
		}
		if step.told && (len(got[0].Held) != 1 || got[0].Held[0].Key != "m" || (got[0].Layer != nil) != step.newCopy) {
			t.Errorf("%s: report %+v", step.name, got[0])
		}
	}
	if st := s.Status()[0]; st.Held != 1 {
		t.Errorf("status %+v", st)
	}
}

// blocked is a directory for copies that cannot be made until free is called.
func blocked(t *testing.T) (dir string, free func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the directory is to be
		t.Fatal(err)
	}
	return dir, func() {
		t.Helper()
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that was full when prices changed, which they may not do again for months.
func TestACopyThatCouldNotBeKeptIsKeptLater(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	path := filepath.Join(t.TempDir(), "p.json")
	write(t, path, table("n", "2e-6"), time.Now())
	for _, place := range []struct{ name, location, model, price string }{
		{"a file", path, "n", "2"}, {"an URL", p.URL, "m", "1"},
	} {
		t.Run(place.name, func(t *testing.T) {
			now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
			dir, free := blocked(t)
			o := SetOptions{Locations: []string{place.location}, Dir: dir, Now: func() time.Time { return now }}
			s, r := newSet(t, o)
			s.Refresh(t.Context())
			now = now.Add(keepAgain)
			s.Refresh(t.Context())
			told := 0
			for _, report := range r.take() {
				if report.Err != nil {
					told++
				}
			}
			if told == 0 || told > 2 { // the file is in the way of what was kept before, too
				t.Errorf("that it cannot be kept is told %d times", told)
			}
			free()
			s.Refresh(t.Context())
			if _, err := os.Stat(dir); err == nil {
				t.Error("it is tried again at once")
			}
			if s.Status()[0].Err == "" {
				t.Error("the status does not tell that it is not kept")
			}
			now = now.Add(keepAgain)
			s.Refresh(t.Context())
			if got := r.take(); len(got) != 0 {
				t.Errorf("reports %+v", got)
			}
			if fault := s.Status()[0].Err; fault != "" {
				t.Errorf("it is kept, and the status tells %q", fault)
			}

			if place.location == path {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			afterRestart(t, o, place.model, place.price)
		})
	}
}

// afterRestart wants a set that begins with what another has kept to have a price.
func afterRestart(t *testing.T, o SetOptions, model, want string) {
	t.Helper()
	next, _ := newSet(t, o)
	if got := inputOf(t, next, model); got != want {
		t.Errorf("after a restart the price is %q", got)
	}
}

// The next config, with other places beside this one, makes a set of its own.
func TestACopyThatCouldNotBeKeptIsHandedOver(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	path := filepath.Join(t.TempDir(), "p.json")
	write(t, path, table("n", "2e-6"), time.Now())
	o := SetOptions{Locations: []string{p.URL}, Dir: filepath.Join(path, "no-directory")}
	s, _ := newSet(t, o)
	s.Refresh(t.Context())
	p.set(http.StatusInternalServerError, "", "")
	o.Locations = append(o.Locations, path)
	next, _ := newSet(t, o)
	if got := inputOf(t, next, "m"); got != "1" {
		t.Errorf("the price is %q", got)
	}
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	next.Refresh(t.Context())
	if asked := p.requests(); asked[len(asked)-1].Get("If-None-Match") != `"one"` {
		t.Errorf("asked with %v", asked[len(asked)-1])
	}
	if got := inputOf(t, next, "m"); got != "1" {
		t.Errorf("then the price is %q", got)
	}
	if next.sources[0].unkept == nil {
		t.Error("it is not tried again to keep it")
	}
}

// The place is away when the disk has room.
func TestACopyIsKeptWhileItsPlaceIsAway(t *testing.T) {
	p := newPriceServer(t, "")
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	dir, free := blocked(t)
	o := SetOptions{Locations: []string{p.URL}, Dir: dir, Now: func() time.Time { return now }}
	s, _ := newSet(t, o)
	s.Refresh(t.Context())
	p.set(http.StatusServiceUnavailable, "", "")
	free()
	now = now.Add(keepAgain)
	s.Refresh(t.Context())
	afterRestart(t, o, "m", "1")
}

// An URL is asked every hour, which is no reason to wait as long with its copy.
func TestACopyIsKeptBeforeItsPlaceIsAskedAgain(t *testing.T) {
	p := newPriceServer(t, "")
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	dir, free := blocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waits []time.Duration
	o := SetOptions{Locations: []string{p.URL}, Dir: dir, Now: func() time.Time { return now }}
	o.After = func(d time.Duration) <-chan time.Time {
		passed := make(chan time.Time, 1)
		if waits = append(waits, d); len(waits) == 4 {
			cancel()
			return passed
		}
		if now = now.Add(d); len(waits) == 3 {
			free()
		}
		passed <- now
		return passed
	}
	s, _ := newSet(t, o)
	s.Run(ctx)
	if asked := p.requests(); len(asked) != 1 {
		t.Errorf("it was asked %d times", len(asked))
	}
	if want := []time.Duration{keepAgain, keepAgain, keepAgain}; len(waits) != 4 || !slices.Equal(waits[:3], want) || waits[3] < DefaultRefresh/2 {
		t.Errorf("waits of %v", waits)
	}
	o.After = nil
	afterRestart(t, o, "m", "1")
}

// A newer copy whose prices moved far is not kept, but compared with the one before over
// restarts: that is to be kept all the same.
func TestACopyThatIsHeldDoesNotReplaceOneThatIsYetToBeKept(t *testing.T) {
	p := newPriceServer(t, "")
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	dir, free := blocked(t)
	o := SetOptions{Locations: []string{p.URL}, Dir: dir, Now: func() time.Time { return now }}
	s, _ := newSet(t, o)
	s.Refresh(t.Context())
	p.set(http.StatusOK, `"two"`, table("m", "5e-4"))
	s.Refresh(t.Context())
	if st := s.Status()[0]; st.Held != 1 {
		t.Fatalf("status %+v", st)
	}
	free()
	now = now.Add(keepAgain)
	s.Refresh(t.Context())
	next, _ := newSet(t, o)
	next.Refresh(t.Context())
	if got := inputOf(t, next, "m"); got != "1" {
		t.Errorf("after a restart the price is %q", got)
	}
}

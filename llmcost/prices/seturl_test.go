package prices

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnURLIsFetchedInTheBackground(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	s, r := newSet(t, SetOptions{Locations: []string{p.URL}})
	if len(p.requests()) != 0 || inputOf(t, s, "m") != "" || s.Table().Lookup("openai", "gpt-5", time.Now()) == nil {
		t.Fatal("the start waits for the network")
	}
	s.Refresh(t.Context())
	if got := inputOf(t, s, "m"); got != "1" {
		t.Errorf("the price is %q", got)
	}
	if got := r.take(); len(got) != 1 || got[0].Err != nil || got[0].Source != p.URL {
		t.Errorf("reports %v", got)
	}
}

func TestWhatHasNotChangedIsNotFetchedAgain(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	s, r := newSet(t, SetOptions{Locations: []string{p.URL}})
	s.Refresh(t.Context())
	r.take()
	tab := s.Table()
	s.Refresh(t.Context())
	asked := p.requests()
	if len(asked) != 2 || asked[1].Get("If-None-Match") != `"one"` || asked[1].Get("If-Modified-Since") != lastModified {
		t.Errorf("asked with %v", asked)
	}
	if len(r.take()) != 0 || s.Table() != tab {
		t.Error("the same copy was taken again")
	}
	if st := s.Status()[0]; st.AsOf.UTC().Format(http.TimeFormat) != lastModified {
		t.Errorf("as of %s", st.AsOf)
	}
}

func TestABadCopyKeepsTheLastGoodOne(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   string // in the error; empty: the copy is taken, but for the price
	}{
		{"no document", http.StatusOK, "<html>", "JSON"},
		{"nothing in it", http.StatusOK, "{}", ""},
		{"an error", http.StatusInternalServerError, "oops", "500"},
		{"not found", http.StatusNotFound, "", "404"},
		{"most models gone", http.StatusOK, `{"m": {"litellm_provider": "openai", "input_cost_per_token": 2e-6}}`, "only 1 of 10"},
		{"cut off", http.StatusOK, table("m", "2e-6")[:100], "JSON"},
		{"without end", http.StatusOK, strings.Repeat(" ", maxDocument+1), "MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPriceServer(t, table("m", "1e-6"))
			s, r := newSet(t, SetOptions{Locations: []string{p.URL + "/p?key=secret"}})
			s.Refresh(t.Context())
			r.take()
			p.set(tt.status, "", tt.body)
			s.Refresh(t.Context())
			if got := inputOf(t, s, "m"); got != "1" {
				t.Errorf("the price is %q", got)
			}
			got := r.take()
			if len(got) != 1 || got[0].Err == nil || got[0].Layer != nil || !strings.Contains(got[0].Err.Error(), tt.want) {
				t.Fatalf("reports %v, want %q in one", got, tt.want)
			}
			if all := got[0].Err.Error() + got[0].Source + s.Status()[0].Err; strings.Contains(all, "secret") {
				t.Errorf("a secret is told: %s", all)
			}
			p.set(http.StatusOK, "", table("m", "2e-6"))
			s.Refresh(t.Context())
			if got := inputOf(t, s, "m"); got != "2" || s.Status()[0].Err != "" {
				t.Errorf("afterwards the price is %q, status %+v", got, s.Status()[0])
			}
		})
	}
}

func TestAFetchThatFailsAtFirstIsReported(t *testing.T) {
	p := newPriceServer(t, "")
	p.Close()
	s, r := newSet(t, SetOptions{Locations: []string{p.URL + "/p?key=secret"}})
	s.Refresh(t.Context())
	got := r.take()
	if len(got) != 1 || got[0].Err == nil || strings.Contains(got[0].Err.Error(), "secret") {
		t.Errorf("reports %v", got)
	}
	if s.Table().Lookup("openai", "gpt-5", time.Now()) == nil {
		t.Error("the built-in table is not in use")
	}
}

func TestTheLastGoodCopyOutlivesARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	p := newPriceServer(t, "")
	p.set(http.StatusOK, `"one"`, table("m", "1e-6"))
	o := SetOptions{Locations: []string{p.URL}, Dir: dir}
	s, _ := newSet(t, o)
	s.Refresh(t.Context())

	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("kept %v, %v", files, err)
	}
	info, err := files[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kept with %v, %v", info.Mode(), err)
	}

	again, r := newSet(t, o)
	if got := inputOf(t, again, "m"); got != "1" || len(r.take()) != 1 {
		t.Errorf("after a restart the price is %q", got)
	}
	if st := again.Status()[0]; st.AsOf.UTC().Format(http.TimeFormat) != lastModified {
		t.Errorf("after a restart as of %s", st.AsOf)
	}
	again.Refresh(t.Context()) // 304: what was kept is still the newest
	if asked := p.requests(); asked[len(asked)-1].Get("If-None-Match") != `"one"` {
		t.Errorf("asked with %v", asked[len(asked)-1])
	}

	// A price that moved far is not kept, so that a restart does not let it in.
	p.set(http.StatusOK, `"two"`, table("m", "11e-6"))
	for range 2 {
		s, r := newSet(t, o)
		r.take()
		s.Refresh(t.Context())
		if got := inputOf(t, s, "m"); got != "1" {
			t.Errorf("the price is %q", got)
		}
		if got := r.take(); len(got) != 1 || got[0].Layer == nil || len(got[0].Layer.Held) != 1 {
			t.Errorf("reports %+v", got)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, files[0].Name()), []byte("{}\nhalf"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken, r := newSet(t, o)
	if got := r.take(); len(got) != 1 || got[0].Err == nil {
		t.Errorf("of a broken copy: %v", got)
	}
	broken.Refresh(t.Context())
	if got := inputOf(t, broken, "m"); got != "11" {
		t.Errorf("without a last copy the price is %q", got)
	}
}

func TestACopyThatCannotBeKeptIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "", time.Now())
	p := newPriceServer(t, table("m", "1e-6"))
	s, r := newSet(t, SetOptions{Locations: []string{p.URL}, Dir: filepath.Join(file, "dir")})
	r.take()
	s.Refresh(t.Context())
	got := r.take()
	if len(got) != 1 || got[0].Layer == nil || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "keeping the copy") {
		t.Errorf("reports %+v", got)
	}
	if inputOf(t, s, "m") != "1" {
		t.Error("the copy is not in use")
	}
}

func TestRunFetchesAtOnceAndThenByTheHour(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	ticks := make(chan time.Time)
	waits := make(chan time.Duration)
	s, _ := newSet(t, SetOptions{
		Locations: []string{p.URL},
		After:     func(d time.Duration) <-chan time.Time { waits <- d; return ticks },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	between := func(d, least, most time.Duration) {
		t.Helper()
		if d < least || d > most {
			t.Errorf("waits for %s, want %s to %s", d, least, most)
		}
	}
	between(<-waits, 54*time.Minute, 66*time.Minute)
	if inputOf(t, s, "m") != "1" {
		t.Error("not fetched at once")
	}
	p.set(http.StatusServiceUnavailable, "", "")
	for least := 54 * time.Second; least < 30*time.Minute; least *= 2 {
		ticks <- time.Time{}
		between(<-waits, least, least*11/9+time.Second)
	}
	for range 8 { // never longer than without failures
		ticks <- time.Time{}
		between(<-waits, 50*time.Minute, 66*time.Minute)
	}
	p.set(http.StatusOK, "", table("m", "2e-6"))
	ticks <- time.Time{}
	between(<-waits, 54*time.Minute, 66*time.Minute)
	cancel()
	<-done
	if got := inputOf(t, s, "m"); got != "2" {
		t.Errorf("the price is %q", got)
	}
}

func TestTheEndOfTheProgramIsNoFault(t *testing.T) {
	p := newPriceServer(t, table("m", "1e-6"))
	s, r := newSet(t, SetOptions{Locations: []string{p.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Refresh(ctx)
	if got := r.take(); len(got) != 0 || s.Status()[0].Err != "" {
		t.Errorf("reports %v", got)
	}
}

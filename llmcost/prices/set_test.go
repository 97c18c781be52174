package prices

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// table is a document in LiteLLM's form with a model of the name given, and a few
// others that never change.
func table(model, perToken string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{%q: {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": %s, "output_cost_per_token": %s}`, model, perToken, perToken)
	for i := range 9 {
		fmt.Fprintf(&b, `,"other-%d": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-6}`, i)
	}
	return b.String() + "}"
}

// inputOf is the input price of a model in use, in USD per million; "" if there is none.
func inputOf(t testing.TB, s *Set, model string) string {
	t.Helper()
	r := s.Table().Lookup("openai", model, time.Now())
	if r == nil {
		return ""
	}
	rate, _ := r.Rates.Base(Input)
	return perMillionText(rate)
}

// perMillionText is a rate in USD per million: femtodollars a unit are nanodollars then.
func perMillionText(r money.Rate) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", r/1e9, r%1e9), "0"), ".")
}

// reports collects what a set tells.
type reports struct {
	mu  sync.Mutex
	all []Report
}

func (r *reports) add(p Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, p)
}

// take returns the reports since the last call.
func (r *reports) take() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// priceServer serves a document that tests change.
type priceServer struct {
	*httptest.Server

	mu     sync.Mutex
	body   string
	etag   string
	status int
	asked  []http.Header
}

func newPriceServer(t testing.TB, body string) *priceServer {
	t.Helper()
	p := &priceServer{body: body, status: http.StatusOK}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *priceServer) set(status int, etag, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.etag, p.body = status, etag, body
}

func (p *priceServer) requests() []http.Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

const lastModified = "Wed, 23 Sep 2026 10:11:04 GMT"

func (p *priceServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Header)
	if p.etag != "" {
		w.Header().Set("ETag", p.etag)
		w.Header().Set("Last-Modified", lastModified)
		if r.Header.Get("If-None-Match") == p.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.WriteHeader(p.status)
	fmt.Fprint(w, p.body)
}

func write(t testing.TB, path, content string, modified time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
}

func newSet(t testing.TB, o SetOptions) (*Set, *reports) {
	t.Helper()
	r := &reports{}
	o.Report = r.add
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func TestWithoutSourcesTheBuiltInTableIsInUse(t *testing.T) {
	s, r := newSet(t, SetOptions{})
	if s.Table().Lookup("openai", "gpt-5", time.Now()) == nil {
		t.Error("no gpt-5")
	}
	if got := r.take(); len(got) != 0 || len(s.Status()) != 0 || len(s.Layers()) != 1 {
		t.Errorf("reports %v, status %v", got, s.Status())
	}
	if !s.Table().AsOf().Equal(Builtin().AsOf) {
		t.Errorf("as of %s", s.Table().AsOf())
	}
}

func TestLaterSourcesWin(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.json"), filepath.Join(dir, "second.json")
	day := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	write(t, first, table("gpt-5", "9e-6"), day)
	write(t, second, `[{"id":"openai","models":[{"id":"gpt-5","prices":{"input_mtok":7}}]}]`, day)
	for want, locations := range map[string][]string{"9": {second, first}, "7": {first, second}} {
		s, r := newSet(t, SetOptions{Locations: locations})
		if got := inputOf(t, s, "gpt-5"); got != want {
			t.Errorf("gpt-5 costs %s, want %s", got, want)
		}
		if got := inputOf(t, s, "gpt-5-nano"); got != "0.05" {
			t.Errorf("gpt-5-nano costs %s, want what the built-in table says", got)
		}
		for _, p := range r.take() {
			if p.Err != nil || p.Layer == nil || !p.Layer.AsOf.Equal(day) {
				t.Errorf("report %+v", p)
			}
		}
	}
}

func TestAModelWithoutPricesHidesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	write(t, path, `{"gpt-5": {"litellm_provider": "openai", "mode": "chat", "max_output_tokens": 9},
		"new": {"litellm_provider": "openai", "mode": "chat"}, "m": {"litellm_provider": "openai", "input_cost_per_token": 1e-6}}`, time.Now())
	s, _ := newSet(t, SetOptions{Locations: []string{path}})
	if got := inputOf(t, s, "gpt-5"); got != "1.25" {
		t.Errorf("gpt-5 costs %q", got)
	}
	if r := s.Table().Lookup("openai", "new", time.Now()); r == nil || r.priced() {
		t.Errorf("the row of a new model is %+v", r)
	}
}

func TestASourceIsCompletedByWhatItsVendorPublishes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	write(t, path, `{"claude-opus-9": {"litellm_provider": "anthropic", "mode": "chat", "input_cost_per_token": "5e-6", "output_cost_per_token": "25e-6", "cache_read_input_token_cost": "1e-7"}}`, time.Now())
	s, _ := newSet(t, SetOptions{Locations: []string{path}})
	r := s.Table().Lookup("anthropic", "claude-opus-9", time.Now())
	if r == nil || r.Fast != (Ratio{2, 1}) {
		t.Fatalf("the row %+v", r)
	}
	rateIs(t, r, Output, Batch, 0, "12.5")
	rateIs(t, r, CacheWrite1h, Standard, 0, "10")
	rateIs(t, r, CacheRead, Standard, 0, "0.1") // as the table says, not a tenth
}

func TestAFileThatCannotBeUsedIsAnErrorAtTheStart(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"no JSON":         "prices",
		"no models":       "{}",
		"half a document": table("m", "1e-6")[:80],
		"only bad rows":   `{"m": {"litellm_provider": "openai", "input_cost_per_token": 1}}`,
	} {
		path := filepath.Join(dir, "p.json")
		write(t, path, content, time.Now())
		if _, err := NewSet(SetOptions{Locations: []string{path}}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want the file in it", name, err)
		}
	}
	if _, err := NewSet(SetOptions{Locations: []string{filepath.Join(dir, "none")}}); err == nil {
		t.Error("a missing file: no error")
	}
	if _, err := NewSet(SetOptions{Locations: []string{dir}}); err == nil {
		t.Error("a directory: no error")
	}
	if _, err := NewSet(SetOptions{Locations: []string{"http://example.com/"}}); err == nil {
		t.Error("an URL in the clear: no error")
	}
}

func TestAFileIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	write(t, path, table("m", "1e-6"), now)
	s, r := newSet(t, SetOptions{Locations: []string{path}})
	r.take()
	steps := []struct {
		name    string
		change  func()
		price   string
		reports int
		err     bool
	}{
		{"unchanged", func() {}, "1", 0, false},
		{"another price", func() { write(t, path, table("m", "2e-6"), now.Add(1)) }, "2", 1, false},
		{"half written", func() { write(t, path, table("m", "3e-6")[:50], now.Add(2)) }, "2", 1, true},
		{"as bad as before", func() {}, "2", 0, true},
		{"written", func() { write(t, path, table("m", "3e-6"), now.Add(3)) }, "3", 1, false},
		{"gone", func() { _ = os.Remove(path) }, "3", 1, true},
		{"still gone", func() {}, "3", 0, true},
		{"back", func() { write(t, path, table("m", "3e-6"), now.Add(3)) }, "3", 1, false},
		{"a price that moved far", func() { write(t, path, table("m", "31e-6"), now.Add(4)) }, "3", 1, false},
	}
	for _, step := range steps {
		step.change()
		s.Refresh(t.Context())
		if got := inputOf(t, s, "m"); got != step.price {
			t.Errorf("%s: the price is %s, want %s", step.name, got, step.price)
		}
		if got := r.take(); len(got) != step.reports {
			t.Errorf("%s: %d reports, want %d: %v", step.name, len(got), step.reports, got)
		}
		if st := s.Status()[0]; (st.Err != "") != step.err || st.Rows != 10 {
			t.Errorf("%s: status %+v", step.name, st)
		}
	}
}

func TestRunReadsAChangedFileWithoutBeingAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	write(t, path, table("m", "1e-6"), time.Unix(1e9, 0))
	ticks := make(chan time.Time)
	changed := make(chan *Table, 8)
	waits := make(chan time.Duration, 8)
	s, _ := newSet(t, SetOptions{
		Locations: []string{path},
		After:     func(d time.Duration) <-chan time.Time { waits <- d; return ticks },
		Changed:   func(tab *Table) { changed <- tab },
	})
	<-changed
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	if d := <-waits; d != DefaultPoll {
		t.Errorf("waits for %s", d)
	}
	write(t, path, table("m", "2e-6"), time.Unix(1e9+1, 0))
	ticks <- time.Time{}
	if tab := <-changed; tab.Lookup("openai", "m", time.Now()) == nil {
		t.Error("no model in the new table")
	}
	cancel()
	<-done
	if got := inputOf(t, s, "m"); got != "2" {
		t.Errorf("the price is %s", got)
	}
}

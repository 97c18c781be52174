package prices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [SetOptions].
const (
	DefaultRefresh = time.Hour
	DefaultPoll    = 2 * time.Second
)

// retryFirst is how long after a failed fetch the next one is tried; the wait doubles
// up to the regular one.
const retryFirst = time.Minute

// SetOptions are where prices come from besides the built-in table.
type SetOptions struct {
	// Locations are files and URLs, of which later ones win.
	Locations []string
	// Dir is where the last good copies are kept over restarts; empty keeps none.
	Dir string
	// Client fetches; nil is one without special settings.
	Client *http.Client
	// Refresh is how often an URL is asked for a newer copy, give or take a tenth;
	// default [DefaultRefresh].
	Refresh time.Duration
	// Poll is how often a file is looked at; default [DefaultPoll].
	Poll time.Duration
	// Now and After are the clock; default the system's.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Report is told of every copy that was taken or refused, and of prices that stay
	// held. It may be called from
	// several goroutines, and before NewSet returns; it must not call [Set.Refresh].
	Report func(Report)
	// Changed is given every new table, one at a time, before [Set.Table] returns it;
	// the first one too. It must not call the set.
	Changed func(*Table)
}

// Report is what became of a newer copy of a source, or a reminder.
type Report struct {
	Source string // without what may be secret of an URL
	// Layer is the copy, if it is used from now on; its Faults are the models that are
	// not. Nil if the last copy stays.
	Layer *Layer
	// Held are the models that keep the prices of an older copy, since those of the newer
	// one moved too far. They are told with the copy, and again every day that it is in
	// use.
	Held []Fault
	// Err tells why the copy is not used, or, with a Layer, why it is not kept for the
	// next start.
	Err error
}

// Set is the prices in use: the built-in table under those of the sources. It is safe
// for concurrent use.
type Set struct {
	o       SetOptions
	sources []*source

	mu     sync.Mutex // of what follows, and of the sources' layers
	status []SourceStatus
	told   []time.Time // when the held prices of a source were last told
	layers []*Layer    // by source; nil where there is no copy yet
	table  atomic.Pointer[Table]
}

// SourceStatus is how a source of prices is.
type SourceStatus struct {
	Source  string
	AsOf    time.Time // of the copy in use; zero if there is none
	Rows    int
	Faults  int
	Held    int       // how many of Faults keep prices of an older copy
	Checked time.Time // when a newer copy was last looked for; zero if never
	Err     string    // of the last look, or why the copy is not kept; empty if all went well
}

// NewSet reads the files, and what was kept of them and of the URLs; it connects to
// nothing and writes nothing. A file without usable prices is an error if nothing was
// kept of it, as is a location that is none. An URL of which nothing was kept has no
// prices until [Set.Run] has fetched them.
func NewSet(o SetOptions) (*Set, error) {
	if o.Refresh <= 0 {
		o.Refresh = DefaultRefresh
	}
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	s := &Set{
		o:      o,
		status: make([]SourceStatus, len(o.Locations)),
		told:   make([]time.Time, len(o.Locations)),
		layers: make([]*Layer, len(o.Locations)),
	}
	for i, location := range o.Locations {
		src, err := newSource(location, o.Dir, o.Client, o.Now)
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, src)
		s.status[i].Source = src.String()
		l, err := src.first()
		if l == nil && src.url == nil {
			return nil, fmt.Errorf("prices %q: %w", src, err)
		}
		if l != nil || err != nil {
			s.note(i, l, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.build()
	return s, nil
}

// Table is the prices in use.
func (s *Set) Table() *Table { return s.table.Load() }

// Layers are the built-in layer and those of the sources that have a copy, the ones that
// win last.
func (s *Set) Layers() []*Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all()
}

func (s *Set) all() []*Layer {
	all := []*Layer{Builtin()}
	for _, l := range s.layers {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// Status is how the sources are, in the order of their locations.
func (s *Set) Status() []SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]SourceStatus(nil), s.status...)
}

// Activated are the rows in use that came into force after their layer's prices had been
// collected; see [Table.Activated].
func (s *Set) Activated(now time.Time) []*Row {
	t := s.Table()
	var rows []*Row
	for _, l := range s.Layers() {
		rows = append(rows, t.Activated(l, now)...)
	}
	return rows
}

// Refresh looks for newer copies of all sources at once.
func (s *Set) Refresh(ctx context.Context) {
	for i := range s.sources {
		s.look(ctx, i)
	}
}

// Run keeps the prices fresh until the context ends.
func (s *Set) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range s.sources {
		wg.Go(func() { s.keep(ctx, i) })
	}
	wg.Wait()
}

// keep looks after one source, at once and then from time to time.
func (s *Set) keep(ctx context.Context, i int) {
	failures := 0
	for {
		if s.look(ctx, i) {
			failures = 0
		} else {
			failures++
		}
		if !s.rest(ctx, i, s.wait(i, failures)) {
			return
		}
	}
}

// rest lets the time pass until a source is looked at again. A copy that is yet to be kept
// is tried meanwhile, which asks nobody for it. It returns false when the context ends.
func (s *Set) rest(ctx context.Context, i int, d time.Duration) bool {
	src := s.sources[i]
	for d > 0 {
		part := d
		if src.waits() {
			part = min(d, keepAgain)
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.o.After(part):
		}
		if d -= part; d > 0 {
			src.mu.Lock()
			_ = src.keep() // was told when it failed first
			s.mu.Lock()
			s.tellUnkept(i)
			s.mu.Unlock()
			src.mu.Unlock()
		}
	}
	return true
}

// wait is how long it is until a source is looked at again.
func (s *Set) wait(i, failures int) time.Duration {
	if s.sources[i].url == nil {
		return s.o.Poll
	}
	d := s.o.Refresh
	if failures > 0 {
		d = min(d, retryFirst<<min(failures-1, 10))
	}
	return d - d/10 + rand.N(d/5+1)
}

// look looks for a newer copy of a source, and uses it. It reports whether the source
// could be looked at.
func (s *Set) look(ctx context.Context, i int) bool {
	src := s.sources[i]
	src.mu.Lock()
	defer src.mu.Unlock()
	l, err := src.read(ctx)
	if ctx.Err() != nil && l == nil {
		return false // the end of the program is no fault of the source
	}
	s.note(i, l, err)
	return err == nil || l != nil
}

// remindEvery is how often at least held prices are told of.
const remindEvery = 24 * time.Hour

// note notes what became of a newer copy, and builds a table of it.
func (s *Set) note(i int, l *Layer, err error) {
	s.mu.Lock()
	st := &s.status[i]
	st.Checked = s.o.Now()
	// A file that is as bad as it was is not read again, and says nothing of it.
	if err != nil || l != nil || s.sources[i].url != nil {
		st.Err = ""
	}
	if err != nil {
		st.Err = err.Error()
	}
	s.tellUnkept(i)
	if l != nil {
		st.AsOf, st.Rows, st.Faults, st.Held = l.AsOf, len(l.Rows), len(l.Faults), len(l.Held)
		s.layers[i] = l
		if s.table.Load() != nil { // else NewSet builds it when all are there
			s.build()
		}
	}
	var held []Fault
	if in := s.layers[i]; in != nil && (l != nil || st.Checked.Sub(s.told[i]) >= remindEvery) {
		held, s.told[i] = in.Held, st.Checked
	}
	s.mu.Unlock()
	if s.o.Report != nil && (l != nil || err != nil || len(held) > 0) {
		s.o.Report(Report{Source: st.Source, Layer: l, Held: held, Err: err})
	}
}

// tellUnkept has the status say why a copy is not kept for the next start for as long as that
// is so, and no longer. s.mu and that of the source are locked.
func (s *Set) tellUnkept(i int) {
	src, st := s.sources[i], &s.status[i]
	switch {
	case src.unkept == nil && st.Err == src.fault:
		st.Err = ""
	case src.unkept != nil && st.Err == "":
		st.Err = src.fault
	}
}

// build makes the table of the layers there are.
func (s *Set) build() {
	layers := s.all()
	rows := make([][]*Row, len(layers))
	var asOf time.Time
	priced := make(map[ident]bool)
	for i, l := range layers {
		rows[i] = pricedOrNew(l.Rows, priced)
		asOf = later(asOf, l.AsOf)
	}
	t := NewTable(asOf, rows...)
	if s.o.Changed != nil {
		s.o.Changed(t)
	}
	s.table.Store(t)
}

// pricedOrNew are the rows without those that name a model and no price of it, where a
// layer below has one: a table of features must not make a model unknown.
func pricedOrNew(rows []*Row, priced map[ident]bool) []*Row {
	kept := make([]*Row, 0, len(rows))
	for _, r := range rows {
		id, _ := identOf(r)
		if !r.priced() && priced[id] {
			continue
		}
		kept = append(kept, r)
	}
	for _, r := range kept {
		if r.priced() {
			id, _ := identOf(r)
			priced[id] = true
		}
	}
	return kept
}

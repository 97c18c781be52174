package outage

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// server is what several remotes share. It counts in memory.
type server struct {
	*memory.Store
	mu      sync.Mutex
	seqs    map[string]int64 // of origin and entity
	applied []store.Batch
}

func newServer(now func() time.Time) *server {
	return &server{Store: memory.New(memory.Options{Now: now}), seqs: make(map[string]int64)}
}

// fake is a remote of a server, which a test can take away.
type fake struct {
	*server
	timeout time.Duration
	calls   atomic.Int64 // that reached it, pings aside

	mu       sync.Mutex
	down     error
	refuse   map[store.Entity]error // entities that are not served
	hang     bool
	lose     func() bool // the reply of a charge
	pending  [][]byte
	restored [][]byte
	closed   bool
}

var errGone = fmt.Errorf("connection refused: %w", store.ErrUnavailable)

func (f *fake) set(down error, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.hang = down, hang
}

func (f *fake) reach(ctx context.Context) error {
	f.mu.Lock()
	down, hang := f.down, f.hang
	f.mu.Unlock()
	if !hang {
		return down
	}
	select {
	case <-time.After(f.timeout):
	case <-ctx.Done():
	}
	return fmt.Errorf("timeout: %w", store.ErrUnavailable)
}

// serve is reach, for an entity.
func (f *fake) serve(ctx context.Context, e store.Entity) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuse[e]
}

// setEntity has the remote refuse an entity, or serve it again.
func (f *fake) setEntity(e store.Entity, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		f.refuse = make(map[store.Entity]error)
	}
	f.refuse[e] = err
}

func (f *fake) Reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	f.calls.Add(1)
	if err := f.serve(ctx, r.Entity); err != nil {
		return nil, err
	}
	return f.server.Reserve(ctx, r, results)
}

func (f *fake) Read(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) error {
	if err := f.serve(ctx, e); err != nil {
		return err
	}
	return f.server.Read(ctx, e, rules, results)
}

func (f *fake) Adjust(ctx context.Context, e store.Entity, amounts ...store.Amount) error {
	if err := f.serve(ctx, e); err != nil {
		return err
	}
	return f.server.Adjust(ctx, e, amounts...)
}

func (f *fake) Clear(ctx context.Context, e store.Entity) error {
	if err := f.serve(ctx, e); err != nil {
		return err
	}
	return f.server.Clear(ctx, e)
}

func (f *fake) Override(ctx context.Context, e store.Entity, rule string, limit *int64) error {
	if err := f.serve(ctx, e); err != nil {
		return err
	}
	return f.server.Override(ctx, e, rule, limit)
}

func (f *fake) Identity() string { return "me" }

func (f *fake) Ping(ctx context.Context) error { return f.reach(ctx) }

func (f *fake) Charge(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	seen := make(map[store.Entity]bool)
	for i, b := range batches {
		if seen[b.Entity] {
			panic("two batches of one entity at once")
		}
		seen[b.Entity] = true
		if errs[i] = f.serve(ctx, b.Entity); errs[i] != nil {
			continue
		}
		f.apply(b)
		f.mu.Lock()
		lost := f.lose != nil && f.lose()
		f.mu.Unlock()
		if lost {
			errs[i] = fmt.Errorf("reply lost: %w", store.ErrUnavailable)
		}
	}
	return errs
}

func (s *server) apply(b store.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%q %q", b.Origin, b.Entity)
	if s.seqs[key] >= b.Seq {
		return
	}
	s.seqs[key] = b.Seq
	b.Lines = append([]store.Amount(nil), b.Lines...)
	s.applied = append(s.applied, b)
	for _, a := range b.Lines {
		_ = s.Adjust(context.Background(), b.Entity, a) // it never fails
	}
}

func (f *fake) Pending() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.pending) }

func (f *fake) Export() [][]byte { f.mu.Lock(); defer f.mu.Unlock(); return f.pending }

func (f *fake) Stuck() [][]byte { return f.Export() }

func (f *fake) Restore(records [][]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restored = records
	return nil
}

func (f *fake) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// setup is counters in front of a fake remote of the server.
func setup(t *testing.T, s *server, o Options) (*Counters, *fake) {
	t.Helper()
	f := &fake{server: s, timeout: 50 * time.Millisecond}
	o.Probe, o.every = 10*time.Millisecond, 5*time.Millisecond
	if o.Timeout == 0 {
		o.Timeout = f.timeout
	}
	if o.OnError == nil {
		o.OnError = func(err error) { t.Errorf("unexpected: %v", err) }
	}
	c := New(func(string) Remote { return f }, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // some tests leave charges behind
	})
	return c, f
}

var (
	entity = store.Entity{Instance: "apps", Consumer: "team-a"}
	day    = &store.Rule{ID: "tokens per day", Window: must(store.Calendar("day", nil))}
	minute = &store.Rule{ID: "requests per minute", Window: must(store.Calendar("minute", nil))}
	flight = &store.Rule{ID: "concurrent", Window: store.None()}
)

func must(w *store.Window, err error) *store.Window {
	if err != nil {
		panic(err)
	}
	return w
}

// take charges n at once.
func take(r *store.Rule, limit, n int64) store.Take {
	return store.Take{Rule: r, Limit: limit, Need: n, Charge: n}
}

// hold holds n.
func hold(r *store.Rule, limit, n int64) store.Take {
	return store.Take{Rule: r, Limit: limit, Need: n, Hold: n}
}

func reserve(c store.Counters, strict bool, takes ...store.Take) (*store.Ticket, []store.Result, error) {
	results := make([]store.Result, len(takes))
	r := store.Reservation{Entity: entity, Known: true, Strict: strict, Takes: takes, Lease: time.Hour}
	k, err := c.Reserve(context.Background(), &r, results)
	return k, results, err
}

// admit fails the test if the call is not admitted.
func admit(t *testing.T, c store.Counters, takes ...store.Take) *store.Ticket {
	t.Helper()
	k, results, err := reserve(c, false, takes...)
	if err != nil || k == nil {
		t.Fatalf("got %v, %v, want a ticket: %+v", k, err, results)
	}
	return k
}

// use is a whole call that uses n.
func use(t *testing.T, c store.Counters, r *store.Rule, n int64) {
	t.Helper()
	c.Settle(admit(t, c, hold(r, 1<<60, 1)), []int64{n})
}

func used(t *testing.T, c store.Counters, r *store.Rule) int64 {
	t.Helper()
	var results [1]store.Result
	if err := c.Read(context.Background(), entity, []*store.Rule{r}, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0].Used
}

// wait polls with a generous deadline.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// cut takes the remote away, and has the circuit open.
func cut(t *testing.T, c *Counters, f *fake) {
	t.Helper()
	f.set(errGone, false)
	for i := 0; !c.Status().Open; i++ {
		e := store.Entity{Instance: "none", Consumer: fmt.Sprint(i)}              // lest one is set apart
		_ = c.Adjust(context.Background(), e, store.Amount{Rule: day, Amount: 1}) // this one tries only the remote
	}
}

// heal brings it back, and waits until all is handed over.
func heal(t *testing.T, c *Counters, f *fake) {
	t.Helper()
	f.set(nil, false)
	wait(t, "the end of the outage", func() bool { s := c.Status(); return !s.Open && s.Pending == 0 })
}

// midday is a clock that stands still shortly after noon, so that no window ends.
func midday() (now func() time.Time, step func(time.Duration)) {
	var at atomic.Int64
	at.Store(time.Date(2026, 5, 6, 12, 0, 5, 0, time.UTC).UnixMilli())
	return func() time.Time { return time.UnixMilli(at.Load()) }, func(d time.Duration) { at.Add(d.Milliseconds()) }
}

func journalPath(dir string) string { return filepath.Join(dir, logName) }

// Package pricing prices calls by a table of prices and an operator's own words. It
// stands between the meter, which knows no tables, and the tables, which know no meter.
package pricing

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// Unknown says what becomes of calls of a model without a price.
type Unknown string

// The policies. The empty one is Deny under a budget, else Unpriced.
const (
	Unpriced  Unknown = "unpriced" // they pass, and their cost is absent
	Deny      Unknown = "deny"     // they are refused
	Zero      Unknown = "zero"     // they cost nothing
	AtDefault Unknown = "default"  // they cost what the operator says
)

// Options say how calls are priced.
type Options struct {
	// Table returns the table of the moment.
	Table func() *prices.Table
	// Provider is whose prices apply, by LiteLLM's names; empty is told by the call.
	Provider string
	// Aliases are as in [prices.Options].
	Aliases map[string]string
	// Own makes the operator's prices; nil is none. It is called for each new table.
	Own func() []*prices.Own
	// Unknown is what becomes of calls of a model without a price.
	Unknown Unknown
	// AnyModel makes the price of models without one, for the policies Zero and
	// AtDefault; else it is nil.
	AnyModel func() *prices.Own
	// Logger is told of calls without a price; nil is Caddy's of the moment.
	Logger *zap.Logger
}

// Pricer prices calls. It implements meter.Pricer.
type Pricer struct {
	o       Options
	current atomic.Pointer[prices.Book]
	mu      sync.Mutex // of making a book
	unknown reminder
}

// New returns a pricer. The error says what is wrong with the options.
func New(o Options) (*Pricer, error) {
	p := &Pricer{o: o}
	b, err := o.book(o.Table())
	if err != nil {
		return nil, err
	}
	p.current.Store(b)
	return p, nil
}

// Check says what is wrong with the options, but for the table.
func Check(o Options) error {
	_, err := o.book(nil)
	return err
}

// book puts the operator's words over a table.
func (o *Options) book(t *prices.Table) (*prices.Book, error) {
	words := prices.Options{Aliases: o.Aliases}
	if o.Own != nil {
		words.Own = o.Own()
	}
	if o.AnyModel != nil {
		words.Unknown = o.AnyModel()
	}
	return prices.NewBook(t, words)
}

// book is that of the table of the moment.
func (p *Pricer) book() *prices.Book {
	t := p.o.Table()
	if b := p.current.Load(); b.Table() == t {
		return b
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.current.Load(); b.Table() == t {
		return b
	}
	b, err := p.o.book(t)
	if err != nil {
		return p.current.Load() // the options were right before, and a table cannot make them wrong
	}
	p.current.Store(b)
	return b
}

// Price implements meter.Pricer.
func (p *Pricer) Price(q *meter.Priced) (money.USD, meter.CostStatus) {
	c := p.call(q)
	cost := p.book().Price(&c)
	q.Basis = meter.Basis{Key: cost.Key, Approx: cost.Approx}
	if cost.Status == prices.Unpriced {
		p.unknown.log(p.o.Logger, q)
		return 0, meter.CostUnpriced
	}
	return cost.USD, meter.CostStatus(cost.Status.String())
}

// Expect implements meter.Pricer.
func (p *Pricer) Expect(q *meter.Priced, input, output int64) (money.USD, bool) {
	c := p.call(q)
	cost := p.book().Expect(&c, input, output)
	return cost.USD, cost.Status != prices.Unpriced
}

// Worst implements meter.Pricer.
func (p *Pricer) Worst(q *meter.Priced, input, output int64) (money.USD, bool) {
	c := p.call(q)
	cost := p.book().Estimate(&c, input, output)
	return cost.USD, cost.Status != prices.Unpriced
}

// Denies implements meter.Pricer.
func (p *Pricer) Denies(budget bool) bool {
	return p.o.Unknown == Deny || p.o.Unknown == "" && budget
}

// call is the call as tables see it.
func (p *Pricer) call(q *meter.Priced) prices.Call {
	return prices.Call{
		Provider: p.o.Provider, API: q.API, Host: q.Host, Requested: q.Requested, Served: q.Served,
		Usage: q.Usage, Other: q.Other, Terms: q.Terms, Hints: q.Hints, TextOnly: q.TextOnly, At: q.At,
	}
}

// Builtin returns the table that comes with the program, without any other; all share it.
func Builtin() *prices.Table { return builtin() }

var builtin = sync.OnceValue(func() *prices.Table {
	l := prices.Builtin()
	return prices.NewTable(l.AsOf, l.Rows)
})

// Announce tells the log and the metrics which table is in force from now on. activated
// is how many of its prices began after the table was made; see [prices.Table.Activated].
func Announce(table func() *prices.Table, activated func(now time.Time) int) {
	t := table()
	caddy.Log().Named("llm.prices").Info("pricing calls", zap.String("as_of", t.AsOf().Format(time.DateOnly)), zap.Int("models", t.Models()))
	metrics.Process.SetTable(func() metrics.Table {
		return metrics.Table{AsOf: table().AsOf(), ActivatedAfter: activated(time.Now())}
	})
}

// AnnounceBuiltin announces the built-in table, unless another has been announced since
// the config started.
func AnnounceBuiltin() {
	if metrics.Process.HasTable() {
		return
	}
	Announce(Builtin, func(now time.Time) int { return len(Builtin().Activated(prices.Builtin(), now)) })
}

// Default returns the pricer of calls for which the config says no prices: the built-in
// table, the same for all.
var Default = sync.OnceValue(func() *Pricer {
	p, err := New(Options{Table: Builtin})
	if err != nil {
		panic("pricing without options: " + err.Error())
	}
	return p
})

// remindEvery is how often at most one reminds of a model without a price.
const remindEvery = time.Minute

// reminder logs models that have no price: each once in an interval, and not more of them
// than a client could make up.
type reminder struct {
	mu    sync.Mutex
	since time.Time
	told  map[string]bool
}

// remindMost is how many models are named in an interval.
const remindMost = 20

func (m *reminder) log(logger *zap.Logger, q *meter.Priced) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil || q.At.Sub(m.since) >= remindEvery {
		m.since, m.told = q.At, make(map[string]bool)
	}
	model := q.Served
	if model == "" {
		model = q.Requested
	}
	if m.told[model] || len(m.told) >= remindMost {
		return
	}
	m.told[model] = true
	if logger == nil {
		logger = caddy.Log().Named("llm.prices") // not kept: each config has its own
	}
	logger.Warn("no price for a model", zap.String("requested", q.Requested), zap.String("served", q.Served), zap.Stringer("api", q.API))
}

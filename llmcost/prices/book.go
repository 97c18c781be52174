package prices

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Options are what an operator says about prices.
type Options struct {
	// Aliases name the model behind a deployment: names as they are called, in any
	// case, to names that the table knows, with or without a provider's prefix.
	Aliases map[string]string
	// Own are the operator's own prices. Of several whose globs match, the one with the
	// most literal characters counts, then the first.
	Own []*Own
	// Unknown is the price of models that nothing else prices; nil is none.
	Unknown *Own
}

// Book prices calls by a table and an operator's own words. It is immutable, and safe
// for concurrent use.
type Book struct {
	table   *Table
	aliases map[string]string
	own     []*Own
	unknown *Own
	recall  recall
}

// NewBook puts an operator's words over a table. It refuses an alias without a name or
// a model, aliases that differ in case only, and prices without any field. t may be
// nil: nothing is then priced but by the operator.
func NewBook(t *Table, o Options) (*Book, error) {
	if t == nil {
		t = &Table{}
	}
	b := &Book{table: t, own: slices.Clone(o.Own), unknown: o.Unknown, aliases: make(map[string]string, len(o.Aliases))}
	for name, model := range o.Aliases {
		key := modelname.Plain(name)
		if key == "" || strings.TrimSpace(model) == "" {
			return nil, fmt.Errorf("alias %q of model %q: both must be named", name, model)
		}
		if _, twice := b.aliases[key]; twice {
			return nil, fmt.Errorf("alias %q is given twice", name)
		}
		b.aliases[key] = modelname.Plain(model)
	}
	for _, own := range b.own {
		if own.rates.Len() == 0 {
			return nil, fmt.Errorf("price %q: no field is set", own.Glob)
		}
	}
	if b.unknown != nil && b.unknown.rates.Len() == 0 {
		return nil, errors.New("price of unknown models: no field is set")
	}
	slices.SortStableFunc(b.own, func(x, y *Own) int { return y.glob.Literals() - x.glob.Literals() })
	return b, nil
}

// Table is the table that the book prices by.
func (b *Book) Table() *Table { return b.table }

// Status is how a cost came about.
type Status uint8

// The statuses.
const (
	// Unpriced is a call that nothing prices; its cost is unknown, not zero.
	Unpriced Status = iota
	// Calculated is reported usage at the table's or the operator's rates.
	Calculated
	// Reported is what the provider said.
	Reported
	// Estimated is usage at least some of which was estimated.
	Estimated
)

// String is the status as logs and the variable x-llm-cost-status have it.
func (s Status) String() string {
	switch s {
	case Calculated:
		return "calculated"
	case Reported:
		return "reported"
	case Estimated:
		return "estimated"
	default:
		return "unpriced"
	}
}

// Cost is what a call cost.
type Cost struct {
	// USD is the amount to charge. Of an unpriced call it is 0.
	USD    money.USD
	Status Status
	// Key is the row that priced the call, or the glob of the operator's price where
	// there is no row; empty if none did.
	Key string
	// Approx is set if a rate had to be derived or was not the model's very own.
	Approx bool
	// Why says in fixed words what is approximate, or why nothing priced the call.
	Why string
	// Calculated is what the table makes of a call whose cost was reported, for
	// comparison, and 0 if that has no price; elsewhere it is USD.
	Calculated money.USD
}

// doubt notes that a cost is approximate; the first reason stays.
func (c *Cost) doubt(why string) {
	c.Approx = true
	if c.Why == "" {
		c.Why = why
	}
}

// bound notes that the cost is an upper bound of what was not told: it is no longer
// calculated.
func (c *Cost) bound(why string) {
	c.doubt(why)
	if c.Status == Calculated {
		c.Status = Estimated
	}
}

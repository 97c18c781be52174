package llmcost

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// checkSources checks what can be said of places without looking at them.
func checkSources(locations []string) error {
	seen := make(map[string]bool)
	for _, l := range locations {
		switch {
		case strings.TrimSpace(l) == "":
			return errors.New("prices: a place without a name")
		case seen[l]:
			return fmt.Errorf("prices: %q stands here twice", l)
		}
		seen[l] = true
	}
	return nil
}

// pool keeps tables, by where they come from, from one config to the next: a reload
// fetches nothing again, and handlers with the same sources share one table.
var pool = caddy.NewUsagePool()

// tables is a handler's share of the tables of its sources.
type tables struct {
	key      string
	shared   *sharedTables // nil without sources; stays, since calls outlive their config
	acquired bool
}

// sharedTables are tables that are kept fresh while some config uses them.
type sharedTables struct {
	set    *prices.Set
	once   sync.Once // of starting
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // it ends what outlives every config's context
	work   sync.WaitGroup
}

// openTables opens the tables of some places, without the network. The error says which
// cannot be used.
func openTables(locations []string) (*tables, error) {
	if len(locations) == 0 {
		return &tables{}, nil
	}
	key := strings.Join(locations, "\n")
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
		set, err := prices.NewSet(prices.SetOptions{
			Locations: locations, Dir: filepath.Join(caddy.AppDataDir(), "llm", "prices"), Report: report,
		})
		if err != nil {
			return nil, err
		}
		s := &sharedTables{set: set}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		return s, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening prices: %w", err)
	}
	return &tables{key, v.(*sharedTables), true}, nil
}

// report logs what became of a newer copy.
func report(r prices.Report) {
	// not a config's logger: tables outlive the config that opened them
	tell(caddy.Log().Named("llm.prices"), r)
}

// tell writes a report: held prices first, and all of them, for they may be wrong as
// long as nobody looks.
func tell(logger *zap.Logger, r prices.Report) {
	if r.Err != nil {
		logger.Error("refreshing prices; those before stay in force", zap.String("source", r.Source), zap.Bool("in_use", r.Layer != nil), zap.Error(r.Err))
	}
	for i, f := range r.Held {
		if i == maxHeld {
			logger.Warn("more prices moved too far", zap.String("source", r.Source), zap.Int("models", len(r.Held)-i))
			break
		}
		logger.Warn("a price moved too far; the one before stays in force until a `price` sets one", zap.String("source", r.Source), zap.Stringer("fault", f))
	}
	if r.Layer == nil {
		return
	}
	logger.Info("prices are in force", zap.String("source", r.Source), zap.Int("rows", len(r.Layer.Rows)),
		zap.Int("faults", len(r.Layer.Faults)), zap.Time("as_of", r.Layer.AsOf))
	for i, f := range r.Layer.Faults[len(r.Layer.Held):] {
		if i == maxFaults {
			break
		}
		logger.Warn("prices that are not used", zap.String("source", r.Source), zap.Stringer("fault", f))
	}
}

// How many models of one copy are named in the log.
const (
	maxHeld   = 100 // an operator has to look at them
	maxFaults = 20
)

// start keeps the tables fresh from now on.
func (t *tables) start() {
	if t.shared == nil {
		pricing.AnnounceBuiltin()
		return
	}
	set := t.shared.set
	t.shared.once.Do(func() {
		t.shared.work.Go(func() { set.Run(t.shared.ctx) })
	})
	pricing.Announce(set.Table, func(now time.Time) int { return len(set.Activated(now)) })
}

// table is the table of the moment.
func (t *tables) table() *prices.Table {
	if t.shared == nil {
		return pricing.Builtin()
	}
	return t.shared.set.Table()
}

// close gives the share back; tables that nobody uses are refreshed no more. It may be
// called of nothing.
func (t *tables) close() error {
	if t == nil || !t.acquired {
		return nil
	}
	t.acquired = false
	_, err := pool.Delete(t.key)
	return err
}

// Destruct implements caddy.Destructor. Calls on their way keep the table they have.
func (s *sharedTables) Destruct() error {
	s.cancel()
	s.work.Wait()
	return nil
}

// Interface guard
var _ caddy.Destructor = (*sharedTables)(nil)

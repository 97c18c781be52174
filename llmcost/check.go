package llmcost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// check looks in the table for what the config names. A provider that is none but is
// nearly written like one is an error. Other names that nothing is known of may be right,
// and are told to the log: an URL may not have been fetched yet.
func (h *Handler) check(t *prices.Table, o *pricing.Options, now time.Time) error {
	awaited := slices.ContainsFunc(h.Prices, func(place string) bool { return strings.Contains(place, "://") })
	if h.Provider != "" {
		ok, near := t.HasProvider(h.Provider)
		switch {
		case ok:
		case near != "" && !awaited:
			return fmt.Errorf("provider %q is in no table of prices; is it %q?", h.Provider, near)
		default:
			o.Logger.Warn("no table of prices has the provider: it is priced by `price` and by what it reports alone", zap.String("provider", h.Provider))
		}
	}
	if awaited || len(h.Alias) == 0 {
		return nil
	}
	words := prices.Options{Aliases: h.Alias, Own: o.Own()}
	book, err := prices.NewBook(t, words)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.Alias)) {
		if !book.Prices(h.Provider, name, now) {
			o.Logger.Warn("an alias of a model that has no price", zap.String("alias", name), zap.String("model", h.Alias[name]))
		}
	}
	return nil
}

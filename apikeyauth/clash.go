package apikeyauth

import (
	"slices"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

// clashesMost is how many ids are named in a warning.
const clashesMost = 10

// warnOfClashes tells of ids that another handler of the config has for keys of another
// application: in logs, and where use is counted by key, the two are one. The same keys in
// several handlers are as meant. It is no error, lest a keys file that was changed in
// between keeps a gateway from starting.
func (h *Handler) warnOfClashes(app *llmapp.App) {
	var ids []string
	for _, c := range h.index.Load().secrets {
		id, _ := c.id.(string)
		application, _ := c.application.(string)
		if !app.KeyOf(id, application) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	ids = slices.Compact(ids) // a key that was rotated has two secrets
	h.logger.Warn("keys of two handlers have the same id and different applications; where use is counted by key they are one",
		zap.Int("count", len(ids)), zap.Strings("ids", ids[:min(len(ids), clashesMost)]))
}

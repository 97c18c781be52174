package llmapp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// usageOrClear answers at /llm/usage: GET lists counters, DELETE clears them.
func (ad *Admin) usageOrClear(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodDelete {
		return ad.clear(w, r)
	}
	return ad.usage(w, r)
}

// adjustment is what an operator charges or grants.
type adjustment struct {
	in      Instance
	entity  store.Entity
	unit    string
	window  string // empty for all
	model   string // empty for none in particular
	amount  amount
	targets []RuleInfo
}

// adjust charges an amount to the counters of a unit, or grants it if negative. The answer
// is their state afterwards.
func (*Admin) adjust(w http.ResponseWriter, r *http.Request) error {
	a, err := runningFor(r, http.MethodPost)
	if err != nil {
		return err
	}
	m, err := readMembers(r, "instance", "consumer", "unit", "amount", "window", "model")
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	adj, err := a.adjustment(m)
	if err != nil {
		return err
	}
	amounts := make([]store.Amount, len(adj.targets))
	for i := range adj.targets {
		amounts[i] = store.Amount{Rule: adj.targets[i].Store, Amount: adj.amount.n}
	}
	if err := a.Counters().Adjust(r.Context(), adj.entity, amounts...); err != nil {
		return notDone("nothing is adjusted, or it is taken back", err)
	}
	a.logger.Info("usage adjusted", zap.String("instance", adj.entity.Instance), zap.String("consumer", adj.entity.Consumer),
		zap.String("unit", adj.unit), zap.String("window", adj.window), zap.String("model", adj.model),
		zap.Stringer("amount", adj.amount), zap.Int("counters", len(amounts)), zap.String("remote", r.RemoteAddr))
	rows, err := rowsOf(r, nil, a.Counters(), adj.in, adj.entity, adj.targets)
	if err != nil {
		return apiError(http.StatusServiceUnavailable, fmt.Errorf("it is adjusted, but reading it again: %w", err))
	}
	return writeJSON(w, rows)
}

// adjustment reads what is to be adjusted.
func (a *App) adjustment(m members) (*adjustment, error) {
	adj := new(adjustment)
	var instance, consumer string
	err := m.texts(map[string]*string{"instance": &instance, "consumer": &consumer, "unit": &adj.unit, "window": &adj.window, "model": &adj.model})
	if err != nil {
		return nil, apiError(http.StatusBadRequest, err)
	}
	if adj.in, err = a.instanceOf(instance); err != nil {
		return nil, err
	}
	if adj.entity, err = entityOf(adj.in, consumer); err != nil {
		return nil, err
	}
	if adj.targets, err = adjustable(adj.in, consumer, adj.unit, adj.window, adj.model); err != nil {
		return nil, apiError(http.StatusBadRequest, err)
	}
	raw, ok := m["amount"]
	if !ok {
		return nil, apiError(http.StatusBadRequest, errors.New("amount: expected how much to charge, or to grant if negative"))
	}
	n, err := adj.targets[0].parse(raw)
	if err == nil && n == 0 {
		err = errors.New("0 changes nothing")
	}
	if err != nil {
		return nil, apiError(http.StatusBadRequest, fmt.Errorf("amount: %w", err))
	}
	adj.amount = adj.targets[0].amount(n)
	return adj, nil
}

// adjustable are the rules that an adjustment is for: every window of the unit, or the one
// that is named, at the top level and of each model block; of a named model those that its
// calls count in. Counters of single models are for those alone who name the model.
func adjustable(in Instance, consumer, unit, window, model string) ([]RuleInfo, error) {
	all := rulesForAll(in, consumer)
	if model != "" {
		all = rulesForModel(in, consumer, model)
	}
	units := namesOf(all, func(info *RuleInfo) string { return info.Unit })
	if !slices.Contains(units, unit) {
		return nil, fmt.Errorf("unit: expected one of %s, which instance %q limits, not %q", strings.Join(units, ", "), in.ID(), unit)
	}
	all = slices.DeleteFunc(all, func(info RuleInfo) bool { return info.Unit != unit })
	if all[0].Store.Window.Kind() == store.KindNone {
		return nil, fmt.Errorf("unit: %s is about calls at work, of which nothing is kept that could be adjusted", unit)
	}
	windows := namesOf(all, func(info *RuleInfo) string { return info.Window })
	if window != "" && !slices.Contains(windows, window) {
		return nil, fmt.Errorf("window: expected one of %s, or none for all, not %q", strings.Join(windows, ", "), window)
	}
	apart := 0
	targets := slices.DeleteFunc(all, func(info RuleInfo) bool {
		if window != "" && info.Window != window {
			return true
		}
		if info.PerModel && info.Model == "" {
			apart++
			return true
		}
		return false
	})
	if len(targets) == 0 && apart > 0 {
		return nil, fmt.Errorf("model: expected one: instance %q counts %s of each model apart", in.ID(), unit)
	}
	return targets, nil
}

// namesOf are what rules are called by something, each once.
func namesOf(all []RuleInfo, name func(*RuleInfo) string) []string {
	var names []string
	for i := range all {
		if s := name(&all[i]); !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names
}

// clear has nothing be used any more of the counters of a consumer, in one instance or in
// all that count by consumer, or of those that all callers of an instance share.
func (*Admin) clear(w http.ResponseWriter, r *http.Request) error {
	a, err := runningFor(r, http.MethodDelete)
	if err != nil {
		return err
	}
	q, err := parameters(r, "instance", "consumer")
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	instances := a.list()
	switch id, consumer := q.Get("instance"), q.Get("consumer"); {
	case id != "":
		in, err := a.instanceOf(id)
		if err != nil {
			return err
		}
		instances = []Instance{in}
	case consumer == "":
		return apiError(http.StatusBadRequest, errors.New("consumer: expected one, or an instance that all callers share: not everybody's counters are cleared at once"))
	default:
		instances = slices.DeleteFunc(instances, Instance.Shared)
	}
	rows := []usageRow{}
	for i, in := range instances {
		e, err := entityOf(in, q.Get("consumer"))
		if err != nil {
			return err
		}
		if err := a.Counters().Clear(r.Context(), e); err != nil {
			return notDone(cleared(instances[:i]), err)
		}
		a.logger.Info("usage cleared", zap.String("instance", e.Instance), zap.String("consumer", e.Consumer), zap.String("remote", r.RemoteAddr))
		if rows, err = appendRows(r, rows, a.Counters(), in, e); err != nil {
			return apiError(http.StatusServiceUnavailable, fmt.Errorf("%s, but reading it again: %w", cleared(instances[:i+1]), err))
		}
	}
	return writeJSON(w, rows)
}

// cleared says how far the clearing got.
func cleared(done []Instance) string {
	if len(done) == 0 {
		return "it is not known whether anything is cleared"
	}
	ids := make([]string, len(done))
	for i, in := range done {
		ids[i] = in.ID()
	}
	return "cleared in " + strings.Join(ids, ", ")
}

// notDone answers where the store has failed; what says what became of the request.
func notDone(what string, err error) error {
	return apiError(http.StatusServiceUnavailable, fmt.Errorf("%s: %w", what, err))
}

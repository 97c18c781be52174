package llmapp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// overrideRow is one consumer's own limit, as /llm/overrides tells it.
type overrideRow struct {
	Instance string `json:"instance"`
	// Rule is the config's words. Where the config has the rule no more it is the name
	// of its counter, and Unit is empty.
	Rule     string `json:"rule"`
	Consumer string `json:"consumer"` // empty for the counter that all share
	Model    string `json:"model"`    // empty for a rule that counts models together
	Unit     string `json:"unit"`
	Limit    amount `json:"limit"`
	// Configured is the limit of all others; null where the config has the rule no more.
	Configured *amount `json:"configured"`
}

// overrides answers at /llm/overrides: GET lists consumers' own limits, PUT sets one and
// DELETE takes it away.
func (ad *Admin) overrides(w http.ResponseWriter, r *http.Request) error {
	a, err := runningFor(r, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodPut:
		return a.putOverride(w, r)
	case http.MethodDelete:
		return a.deleteOverride(w, r)
	default:
		return a.listOverrides(w, r)
	}
}

// overrideOf is whose limit of which rule is meant.
type overrideOf struct {
	in     Instance
	entity store.Entity
	rule   RuleInfo
}

// overrideOf reads whose limit is meant, and of which rule. Those that the config has no
// more are found by the names of their counters.
func (a *App) overrideOf(instance, consumer, rule, model string) (o overrideOf, err error) {
	if o.in, err = a.instanceOf(instance); err != nil {
		return o, err
	}
	if o.entity, err = entityOf(o.in, consumer); err != nil {
		return o, err
	}
	all := rulesForAll(o.in, consumer)
	if model != "" {
		all = rulesForModel(o.in, consumer, model)
	}
	i := slices.IndexFunc(all, func(info RuleInfo) bool { return info.Words == rule })
	switch {
	case i < 0:
		words := namesOf(all, func(info *RuleInfo) string { return fmt.Sprintf("%q", info.Words) })
		return o, apiError(http.StatusBadRequest, fmt.Errorf("rule: expected one of %s, not %q", strings.Join(words, ", "), rule))
	case all[i].PerModel && all[i].Model == "":
		return o, apiError(http.StatusBadRequest, fmt.Errorf("model: expected one: %q counts each model apart", rule))
	}
	o.rule = all[i]
	return o, nil
}

// putOverride gives a consumer a limit of its own.
func (a *App) putOverride(w http.ResponseWriter, r *http.Request) error {
	m, err := readMembers(r, "instance", "consumer", "rule", "model", "limit")
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	var instance, consumer, rule, model string
	if err := m.texts(map[string]*string{"instance": &instance, "consumer": &consumer, "rule": &rule, "model": &model}); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	o, err := a.overrideOf(instance, consumer, rule, model)
	if err != nil {
		return err
	}
	raw, ok := m["limit"]
	if !ok {
		return apiError(http.StatusBadRequest, errors.New("limit: expected an amount; 0 admits nothing, and DELETE returns to the config's"))
	}
	limit, err := o.rule.parse(raw)
	if err == nil && limit < 0 {
		err = fmt.Errorf("expected 0, which admits nothing, or more, not %s", shown(raw))
	}
	if err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("limit: %w", err))
	}
	if err := a.Counters().Override(r.Context(), o.entity, o.rule.Store.ID, &limit); err != nil {
		return notDone("it is not known whether the limit is set", err)
	}
	row := o.row(limit)
	a.logger.Info("limit overridden", append(o.fields(r), zap.Stringer("limit", row.Limit), zap.Stringer("configured", row.Configured))...)
	return writeJSON(w, row)
}

// deleteOverride takes a consumer's own limit away. It is named by the members of the
// body, or by the parameters where there is no body.
func (a *App) deleteOverride(w http.ResponseWriter, r *http.Request) error {
	var instance, consumer, rule, model string
	into := map[string]*string{"instance": &instance, "consumer": &consumer, "rule": &rule, "model": &model}
	if err := readNames(r, into); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	in, err := a.instanceOf(instance)
	if err != nil {
		return err
	}
	e, err := entityOf(in, consumer)
	if err != nil {
		return err
	}
	own, err := a.Counters().OverridesOf(r.Context(), e)
	if err != nil {
		return notDone("nothing is changed", err)
	}
	for id, limit := range own {
		o := overridden(in, e, id)
		if row := o.row(limit); row.Rule != rule || row.Model != model {
			continue
		}
		if err := a.Counters().Override(r.Context(), e, id, nil); err != nil {
			if errors.Is(err, store.ErrUnavailable) { // who asks again may be told that there is none
				a.logger.Info("limit no longer overridden, not confirmed by the store", append(o.fields(r), zap.Error(err))...)
			}
			return notDone("it is not known whether the limit is taken away for good: send this again until the answer is 204 or 404", err)
		}
		a.logger.Info("limit no longer overridden", o.fields(r)...)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	// It may have been taken away just now, and not on the disk, as who did it was told:
	// that there is none is to be true after a crash, too.
	if c, ok := a.Counters().(syncer); ok {
		if err := c.Sync(); err != nil {
			return notDone("it is not certain that there is none: one that was taken away just now may not be gone from the disk", err)
		}
	}
	return apiError(http.StatusNotFound, fmt.Errorf("consumer %q has no limit of its own for the rule %q of instance %q; GET /llm/overrides lists them", consumer, rule, instance))
}

// readNames reads what a request names in its body or in its parameters.
func readNames(r *http.Request, into map[string]*string) error {
	known := slices.Sorted(maps.Keys(into))
	if r.ContentLength != 0 {
		m, err := readMembers(r, known...)
		if err != nil {
			return err
		}
		return m.texts(into)
	}
	q, err := parameters(r, known...)
	if err != nil {
		return err
	}
	for name := range into {
		*into[name] = q.Get(name)
	}
	return nil
}

// overridden is a limit that the store has.
func overridden(in Instance, e store.Entity, id string) overrideOf {
	o := overrideOf{in: in, entity: e, rule: RuleInfo{Words: id}}
	if by, ok := in.(RulesByModel); ok {
		if info, known := by.RuleOfID(id); known {
			o.rule = info
		}
	}
	// What the consumer's own group says goes before what others' do.
	for _, info := range slices.Concat(in.Rules(), rulesOf(in, e.Consumer)) {
		if info.Store.ID == id {
			o.rule = info
		}
	}
	return o
}

func (o *overrideOf) row(limit int64) overrideRow {
	row := overrideRow{
		Instance: o.entity.Instance, Consumer: o.entity.Consumer,
		Rule: o.rule.Words, Model: o.rule.Model, Unit: o.rule.Unit, Limit: o.rule.amount(limit),
	}
	if o.rule.Store != nil {
		configured := o.rule.amount(o.rule.Limit)
		row.Configured = &configured
	}
	return row
}

// fields are what the log says of it.
func (o *overrideOf) fields(r *http.Request) []zap.Field {
	return []zap.Field{
		zap.String("instance", o.entity.Instance), zap.String("consumer", o.entity.Consumer),
		zap.String("rule", o.rule.Words), zap.String("model", o.rule.Model), zap.String("remote", r.RemoteAddr),
	}
}

// listOverrides lists consumers' own limits: all, or those of one instance or consumer.
// Where there are more, the Link field of the answer leads on.
func (a *App) listOverrides(w http.ResponseWriter, r *http.Request) error {
	c := a.Counters()
	var instances []Instance
	var entities []store.Entity
	err := a.walk(w, r, c.Overridden, func(in Instance, e store.Entity) error {
		instances, entities = append(instances, in), append(entities, e)
		return nil
	})
	if err != nil {
		return err
	}
	all, err := store.OverridesOfAll(r.Context(), c, entities)
	if err != nil {
		return apiError(http.StatusServiceUnavailable, err)
	}
	rows := []overrideRow{}
	for i, own := range all {
		at := len(rows)
		for id, limit := range own {
			o := overridden(instances[i], entities[i], id)
			rows = append(rows, o.row(limit))
		}
		slices.SortFunc(rows[at:], func(x, y overrideRow) int {
			return strings.Compare(x.Rule+"\x00"+x.Model, y.Rule+"\x00"+y.Model)
		})
	}
	return writeJSON(w, rows)
}

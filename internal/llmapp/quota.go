package llmapp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// RoleUsage is the part of a handler that tells callers what they have used.
const RoleUsage Role = "usage"

// RulesByCaller is an instance that knows which of its counters a caller may see.
type RulesByCaller interface {
	Instance
	// RulesOfCaller returns the consumer that a call with the identity of r counts for,
	// and the rules that can refuse it. There are no rules where the counter is not the
	// caller's alone, or where the operator has answers not tell what is left. Of a block
	// that counts each model apart there is a rule of no model, which nothing counts in,
	// before those of its models.
	RulesOfCaller(r *http.Request) (consumer string, rules []RuleInfo)
}

// Quota is the state of one of a caller's own rules. Amounts are in what is counted:
// picodollars, milliseconds, or the unit itself.
type Quota struct {
	RuleInfo
	// Instance is the id of the instance.
	Instance string
	// Limit is what is in force for the caller now, which the store may know better than
	// the config.
	Limit int64
	// Used is what has been charged in the current window. It may exceed Limit, and is
	// negative where more was granted than is used.
	Used int64
	// Reserved is what calls hold that have not ended.
	Reserved int64
	// Remaining is what further calls may use, never below zero.
	Remaining int64
	// WindowStart and ResetsAt bound the current window in UTC, as store.Result has it;
	// nil where there is none.
	WindowStart, ResetsAt *time.Time
}

// Amount is an amount of the rule's unit as JSON tells it: a number, of dollars a decimal
// string.
func (r *RuleInfo) Amount(n int64) json.Marshaler { return r.amount(n) }

// knowing are counters that can tell what is current from what was known last.
type knowing interface {
	ReadKnown(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) (current bool, err error)
}

// QuotasOf reads a caller's own rules of these instances, in their order. current is false
// where some of what they say is only what this process knows, since the store cannot be
// reached. Errors are those of store.Counters.
func (a *App) QuotasOf(r *http.Request, instances []Instance) (qs []Quota, current bool, err error) {
	qs, _, current, err = new(Recent).QuotasOf(a, r, instances, time.Time{})
	return qs, current, err
}

func (a *App) read(ctx context.Context, e store.Entity, infos []RuleInfo) (results []store.Result, current bool, err error) {
	rules := make([]*store.Rule, len(infos))
	for i := range infos {
		rules[i] = infos[i].Store
	}
	results = make([]store.Result, len(rules))
	if k, ok := a.Counters().(knowing); ok {
		current, err = k.ReadKnown(ctx, e, rules, results)
		return results, current, err
	}
	return results, true, a.Counters().Read(ctx, e, rules, results)
}

// quotas are the rules of an instance. Models that are counted apart and that were not
// called are left out, unless the caller has a limit of its own for one; where there is
// none, the rule of no model stands for them.
func quotas(id string, infos []RuleInfo, results []store.Result) []Quota {
	tells := func(i int) bool {
		return results[i].Used != 0 || results[i].Held != 0 || results[i].Overridden
	}
	told := make(map[string]bool) // rules of blocks, by their words
	for i := range infos {
		if infos[i].Model != "" && tells(i) {
			told[infos[i].Words] = true
		}
	}
	qs := make([]Quota, 0, len(infos))
	for i, info := range infos {
		res := results[i]
		switch {
		case info.PerModel && info.Model == "" && told[info.Words], info.Model != "" && !tells(i):
			continue
		case info.PerModel && info.Model == "":
			res = store.Result{WindowStart: res.WindowStart, ResetAt: res.ResetAt} // it says what was when all models counted together
		}
		if !res.Overridden {
			res.Limit = info.Limit
		}
		qs = append(qs, Quota{
			RuleInfo: info, Instance: id,
			Limit: res.Limit, Used: res.Used, Reserved: res.Held, Remaining: res.Remaining(),
			WindowStart: instant(res.WindowStart), ResetsAt: instant(res.ResetAt),
		})
	}
	return qs
}

// counting is a handler that is a limiter.
type counting interface{ Instance() Instance }

// counted notes that an instance can be seen from lookouts further out.
func (at *position) counted(in Instance) {
	for _, o := range at.open {
		o.instances = append(o.instances, in)
	}
}

// naming is a handler that names instances in its options.
type naming interface{ Named() []string }

// usage follows a handler that tells callers what they have used.
func (w *walk) usage(h any, name string, at position) (position, error) {
	switch {
	case at.answered != "":
		return at, fmt.Errorf("%s stands behind %s, which answers every call: nobody could ask it; put it before", name, at.answered)
	case at.limited:
		return at, fmt.Errorf("%s stands behind a limiter: to ask would count as a call, and not be answered once the limit is reached; put it before the limiters", name)
	}
	if !at.auth {
		at.asked = name
	}
	if n, ok := h.(naming); ok {
		for _, id := range n.Named() {
			switch in := w.app.Instance(id); {
			case in == nil:
				return at, fmt.Errorf("%s: there is no instance %q; there are %s", name, id, strings.Join(w.app.IDs(), ", "))
			case in.Shared():
				return at, fmt.Errorf("%s: all callers share the counter of instance %q, which is told to none of them", name, id)
			}
		}
	}
	if l, ok := h.(Lookout); ok {
		w.watch(l, &at)
	}
	return at, nil
}

// Instance returns the one of this id, nil if there is none. All have been registered once
// the config is provisioned.
func (a *App) Instance(id string) Instance {
	for _, in := range a.list() {
		if in.ID() == id {
			return in
		}
	}
	return nil
}

// IDs are the ids of the instances, sorted.
func (a *App) IDs() []string {
	var ids []string
	for _, in := range a.list() {
		ids = append(ids, in.ID())
	}
	return ids
}

package llmapp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/outage"
)

func init() {
	caddy.RegisterModule(new(Admin))
}

// Admin answers on Caddy's admin endpoint: what is used, and what the limits are.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (*Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.llm", New: func() caddy.Module { return new(Admin) }}
}

// Routes implements caddy.AdminRouter.
func (ad *Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/llm/usage", Handler: caddy.AdminHandlerFunc(ad.usageOrClear)},
		{Pattern: "/llm/usage/adjust", Handler: caddy.AdminHandlerFunc(ad.adjust)},
		{Pattern: "/llm/overrides", Handler: caddy.AdminHandlerFunc(ad.overrides)},
		{Pattern: "/llm/limits", Handler: caddy.AdminHandlerFunc(ad.limits)},
	}
}

// usageRow is one counter, as GET /llm/usage lists it.
type usageRow struct {
	Instance    string     `json:"instance"`
	Rule        string     `json:"rule"`
	Consumer    string     `json:"consumer"` // empty for the counter that all share
	Model       string     `json:"model"`    // empty for a rule over all models
	Unit        string     `json:"unit"`
	Limit       amount     `json:"limit"`
	Used        amount     `json:"used"`
	Reserved    amount     `json:"reserved"`
	Remaining   amount     `json:"remaining"`
	WindowStart *time.Time `json:"window_start"`
	ResetsAt    *time.Time `json:"resets_at"`
	// Override is set where the limit is the consumer's own.
	Override bool `json:"override,omitempty"`
}

// pageSize is how many consumers a page of GET /llm/usage has. Tests make it smaller.
var pageSize = 500

// usage lists counters: all, or those of one instance or consumer. Where there are
// more, the Link field of the answer leads on.
func (*Admin) usage(w http.ResponseWriter, r *http.Request) error {
	a, err := running(r)
	if err != nil {
		return err
	}
	var all []counters
	err = a.walk(w, r, a.Counters().Entities, func(in Instance, e store.Entity) error {
		all = append(all, countersOf(in, e, rulesOf(in, e.Consumer)))
		return nil
	})
	if err != nil {
		return err
	}
	readings := make([]store.Reading, len(all))
	for i := range all {
		readings[i] = all[i].Reading
	}
	if err := store.ReadAll(r.Context(), a.Counters(), readings); err != nil {
		return apiError(http.StatusServiceUnavailable, err)
	}
	rows := []usageRow{}
	for i := range all {
		rows = all[i].append(rows)
	}
	return writeJSON(w, rows)
}

// appendRows appends the counters of an entity, but those of models that were not called.
func appendRows(r *http.Request, rows []usageRow, c store.Counters, in Instance, e store.Entity) ([]usageRow, error) {
	return rowsOf(r, rows, c, in, e, rulesOf(in, e.Consumer))
}

func rowsOf(r *http.Request, rows []usageRow, c store.Counters, in Instance, e store.Entity, infos []RuleInfo) ([]usageRow, error) {
	all := countersOf(in, e, infos)
	if err := c.Read(r.Context(), e, all.Rules, all.Results); err != nil {
		return nil, err
	}
	return all.append(rows), nil
}

// counters are those of an entity.
type counters struct {
	store.Reading
	infos []RuleInfo
}

func countersOf(in Instance, e store.Entity, infos []RuleInfo) counters {
	e.Instance = in.ID()
	c := counters{store.Reading{Entity: e, Rules: make([]*store.Rule, len(infos)), Results: make([]store.Result, len(infos))}, infos}
	for i := range infos {
		c.Rules[i] = infos[i].Store
	}
	return c
}

// append appends the rows of what was read.
func (c *counters) append(rows []usageRow) []usageRow {
	for i, info := range c.infos {
		res := &c.Results[i]
		if info.Model != "" && res.Used == 0 && res.Held == 0 && !res.Overridden {
			continue // one of many models, which was not called
		}
		if !res.Overridden {
			res.Limit = info.Limit
		}
		rows = append(rows, usageRow{
			Instance: c.Instance, Rule: info.Words, Consumer: c.Consumer, Model: info.Model, Unit: info.Unit,
			Limit: info.amount(res.Limit), Used: info.amount(res.Used),
			Reserved: info.amount(res.Held), Remaining: info.amount(res.Remaining()),
			WindowStart: instant(res.WindowStart), ResetsAt: instant(res.ResetAt), Override: res.Overridden,
		})
	}
	return rows
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// limitsAnswer is what GET /llm/limits tells.
type limitsAnswer struct {
	Store string `json:"store"`
	// Remote is how the server is that counts; absent where counts are in this process.
	Remote *remoteStatus `json:"remote,omitempty"`
	Limits []limitEntry  `json:"limits"`
}

type limitEntry struct {
	Instance  string      `json:"instance"`
	Directive string      `json:"directive"`
	Shared    bool        `json:"shared"`
	Key       []string    `json:"key,omitempty"`
	Mode      string      `json:"mode"`
	Rules     []limitRule `json:"rules"`
}

type limitRule struct {
	Rule   string `json:"rule"`
	Unit   string `json:"unit"`
	Limit  amount `json:"limit"`
	Shadow bool   `json:"shadow,omitempty"`

	Group    string   `json:"group,omitempty"`     // whose members it counts
	Models   []string `json:"models,omitempty"`    // globs; all models if absent
	PerModel bool     `json:"per_model,omitempty"` // each model has a counter of its own
	Type     string   `json:"type,omitempty"`      // of the models
}

// remoteStatus is how the server is that counts.
type remoteStatus struct {
	Outage  bool       `json:"outage"` // calls do as on_outage says
	Since   *time.Time `json:"since,omitempty"`
	Error   string     `json:"error,omitempty"` // the last one, which may be over
	Pending int        `json:"pending"`         // charges that it has not been given yet
	Journal struct {
		Bytes int64  `json:"bytes"`
		Error string `json:"error,omitempty"` // why charges are not kept over a restart
		Full  bool   `json:"full"`            // charges are in full, but not told apart by time any more
	} `json:"journal"`
}

func remoteStatusOf(c store.Counters) *remoteStatus {
	with, ok := c.(interface{ Status() outage.Status })
	if !ok {
		return nil
	}
	s := with.Status()
	r := &remoteStatus{Outage: s.Open, Error: s.LastError, Pending: s.Pending}
	if s.Open {
		since := s.Since.UTC()
		r.Since = &since
	}
	r.Journal.Bytes, r.Journal.Error, r.Journal.Full = s.JournalBytes, s.JournalError, s.Saturated
	return r
}

// limits lists the instances of the running config.
func (*Admin) limits(w http.ResponseWriter, r *http.Request) error {
	a, err := running(r)
	if err != nil {
		return err
	}
	answer := limitsAnswer{Store: a.StoreKind(), Remote: remoteStatusOf(a.shared.counters), Limits: []limitEntry{}}
	for _, in := range a.list() {
		e := limitEntry{
			Instance: in.ID(), Directive: in.Directive(), Shared: in.Shared(),
			Key: in.Key(), Mode: in.Mode(), Rules: []limitRule{},
		}
		for _, info := range in.Rules() {
			e.Rules = append(e.Rules, limitRule{
				Rule: info.Words, Unit: info.Unit, Limit: info.amount(info.Limit), Shadow: info.Shadow,
				Group: info.Group, Models: info.Models, PerModel: info.PerModel, Type: info.Type,
			})
		}
		answer.Limits = append(answer.Limits, e)
	}
	return writeJSON(w, answer)
}

// running is the app of the running config, for a GET.
func running(r *http.Request) (*App, error) {
	return runningFor(r, http.MethodGet, http.MethodHead)
}

// runningFor is the app of the running config, for a request by one of some methods.
func runningFor(r *http.Request, methods ...string) (*App, error) {
	if !slices.Contains(methods, r.Method) {
		return nil, apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed: there is %s", r.Method, strings.Join(methods, ", ")))
	}
	a := active()
	if a == nil {
		return nil, apiError(http.StatusNotFound, errNoApp)
	}
	return a, nil
}

func apiError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: err}
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return apiError(http.StatusInternalServerError, err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(append(body, '\n'))
	return err
}

// Interface guards
var _ caddy.AdminRouter = (*Admin)(nil)

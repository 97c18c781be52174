package llmusage

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// document is what a caller is told.
type document struct {
	Consumer string    `json:"consumer"` // the application; empty for a key bound to none
	KeyID    string    `json:"key_id"`   // of the key, or the user
	Group    string    `json:"group"`    // whose limits these are; empty for none
	At       time.Time `json:"at"`
	// Current is false while the counts that replicas share cannot be reached: then these
	// are what this one knows.
	Current bool  `json:"current"`
	Limits  []row `json:"limits"`
}

// row is one limit.
type row struct {
	Instance string   `json:"instance"`
	Rule     string   `json:"rule"` // the config's words without the amount
	Group    string   `json:"group"`
	Models   []string `json:"models"`    // globs of those it counts; empty for all
	PerModel bool     `json:"per_model"` // each of them has the limit for itself
	Model    string   `json:"model"`     // whose count it is, if it is one's alone
	Unit     string   `json:"unit"`
	Currency string   `json:"currency,omitempty"` // of the unit `usd`

	// Numbers, seconds with up to three decimals; of dollars decimal strings.
	Limit     json.Marshaler `json:"limit"`
	Used      json.Marshaler `json:"used"`
	Reserved  json.Marshaler `json:"reserved"`
	Remaining json.Marshaler `json:"remaining"`

	WindowStart *time.Time `json:"window_start"`
	ResetsAt    *time.Time `json:"resets_at"`

	quota llmapp.Quota
}

// unitUSD is the unit of budgets.
const unitUSD = "usd"

func newDocument(who caller, group string, qs []llmapp.Quota, current bool, now time.Time) *document {
	d := &document{
		Consumer: who.application, KeyID: who.id, Group: groupOf(qs, group),
		At: now.UTC().Truncate(time.Millisecond), Current: current, Limits: make([]row, 0, len(qs)),
	}
	for i := range qs {
		d.Limits = append(d.Limits, newRow(&qs[i]))
	}
	return d
}

func newRow(q *llmapp.Quota) row {
	r := row{
		Instance: q.Instance, Rule: q.Words, Group: q.Group, Models: q.Models, PerModel: q.PerModel, Model: q.Model, Unit: q.Unit,
		Limit: q.Amount(q.Limit), Used: q.Amount(q.Used), Reserved: q.Amount(q.Reserved), Remaining: q.Amount(q.Remaining),
		WindowStart: q.WindowStart, ResetsAt: q.ResetsAt, quota: *q,
	}
	if r.Models == nil {
		r.Models = []string{}
	}
	if q.Unit == unitUSD {
		r.Currency = "USD"
	}
	return r
}

// groupOf is the group whose limits are shown. Instances may put a caller into different
// ones; then it is the one that its key says.
func groupOf(qs []llmapp.Quota, said string) string {
	group := ""
	for i := range qs {
		switch g := qs[i].Group; {
		case g == "" || g == group:
		case group == "":
			group = g
		default:
			return said
		}
	}
	if group == "" {
		return said
	}
	return group
}

// Answers of ours that tell nothing. They are the same for everybody.
var (
	methodNotAllowed = &limit.Refusal{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "use and limits can only be read, by GET or HEAD",
	}
	nobody = &limit.Refusal{
		Status: http.StatusUnauthorized, Code: "no_consumer", Message: "use and limits are told to callers that say who they are, and no API key was sent",
	}
	noApplication = &limit.Refusal{
		Status: http.StatusForbidden, Code: "no_application", Message: "this API key is bound to no application: its calls are only counted together with those of others, which are not shown",
	}
	tooOften = &limit.Refusal{
		Status: http.StatusTooManyRequests, Code: "too_many_requests", Message: "use and limits are told " + strconv.Itoa(perSecond) + " times a second at most", RetryAfter: time.Second,
	}
	unavailable = &limit.Refusal{
		Status: http.StatusServiceUnavailable, Code: "usage_unavailable", Message: "what was used cannot be read at this moment", RetryAfter: 5 * time.Second,
	}
)

// header says what holds for all answers: they are one caller's, of this moment, and
// nothing may be loaded into them or put around them.
func header(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

func writeDocument(w http.ResponseWriter, r *http.Request, d *document) error {
	if wantsHTML(r.Header.Values("Accept")) {
		return writePage(w, r, http.StatusOK, pageOf(d))
	}
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return write(w, r, http.StatusOK, "application/json", append(body, '\n'))
}

func writeRefusal(w http.ResponseWriter, r *http.Request, f *limit.Refusal) {
	switch f.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="llm"`)
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD")
	}
	if !wantsHTML(r.Header.Values("Accept")) {
		f.Write(w, usage.OpenAI)
		return
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())))
	}
	// the client may have gone; there is nothing else to tell it
	_ = writePage(w, r, f.Status, &page{Problem: strings.ToUpper(f.Message[:1]) + f.Message[1:] + "."})
}

// write answers. To HEAD it says what GET would have got.
func write(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write(body)
	return err
}

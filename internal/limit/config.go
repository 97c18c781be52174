package limit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // so that an IANA name is known in an image without zone files
	"unique"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// Config is what a limiter is told, but for what it counts in. Handlers embed it.
type Config struct {
	// ID is Caddy's own tag, by which the admin API finds the instance. The Caddyfile
	// adapter sets it to the name where that is used once.
	ID string `json:"@id,omitempty"`

	// Name is the id of the instance in counters, logs and answers. Without it the
	// id is a hash of the directive and the key, so that two limiters of the same
	// kind need names. The counts stay with the name. Default: none.
	Name string `json:"name,omitempty"`

	// ConsumerBased counts each application apart; calls without one count under
	// `default`. Without it and without Key, all callers share one counter.
	// Default: false.
	ConsumerBased bool `json:"consumer_based,omitempty"`

	// Key counts apart by the values of these placeholders. Default: none.
	Key []string `json:"key,omitempty"`

	// Limits are the rules; a call must fit in all of them. At least one, unless there
	// are models or groups.
	Limits []Rule `json:"limits,omitempty"`

	// Models are rules that count only calls of some models, beside Limits. Default:
	// none.
	Models []ModelBlock `json:"models,omitempty"`

	// Unlisted says what becomes of calls of a model in no block of Models, or of none:
	// `deny` answers 403. A caller for whom there are no blocks but limits may call all.
	// Default: `allow`, with a warning where nothing would count such calls.
	Unlisted string `json:"unlisted,omitempty"`

	// Groups are rules for some callers, in place of Limits and Models. Default: none.
	Groups []Group `json:"groups,omitempty"`

	// GroupKey is a placeholder that names the group of a caller which no group lists.
	// Where it is empty, the API key's group counts. Default: none.
	GroupKey string `json:"group_key,omitempty"`

	// DefaultGroup is the group of callers that have no other. Default: none, which is
	// Limits and Models.
	DefaultGroup string `json:"default_group,omitempty"`

	// Share counts together with the other instances that name the same pool. They
	// must have the same rules and key. Default: none.
	Share string `json:"share,omitempty"`

	// Mode is how calls are admitted whose amount is known only afterwards:
	// `charge_after`, `reserve` or `strict`. Default: `reserve`.
	Mode Mode `json:"mode,omitempty"`

	// Timezone is the IANA name of the zone whose midnights bound calendar windows.
	// Default: `UTC`.
	Timezone string `json:"timezone,omitempty"`

	// UsageFields are the places in answers whose counts add up to the tokens of a call,
	// for an API whose answers report their tokens in no known format: member names
	// joined by dots, and `#` for every element of an array, such as "usage.total" or
	// "results.#.tokens". Of each place the last count of a stream is taken. Their sum
	// counts as tokens and input_tokens; there can be no limit of output_tokens beside.
	// Where a call passes several instances, all count by the first of them whose
	// fields are found. Default: none.
	UsageFields []string `json:"usage_fields,omitempty"`

	// Unmetered says what becomes of calls to endpoints that spend where no usage
	// will be seen: `deny` answers 403, `allow` lets them pass uncounted. Default:
	// `deny`.
	Unmetered string `json:"unmetered,omitempty"`

	// Headers says whether answers tell what is left: `on` or `off`. Default: `on`
	// where the count is the caller's own, `off` where it is shared.
	Headers string `json:"headers,omitempty"`

	// Reject changes the answer to a call that does not fit.
	Reject *Reject `json:"reject,omitempty"`

	// Errors hands refusals to the error routes instead of answering. Default: false.
	Errors bool `json:"errors,omitempty"`

	// Shadow counts and reports, and never refuses, but for endpoints that hand out
	// credentials and bodies larger than may be read. Default: false.
	Shadow bool `json:"shadow,omitempty"`
}

// Rule is one limit.
type Rule struct {
	// Amount is how much may be used in a window: a whole number as a string, such as
	// "10000", "10k" or "2.5M"; of a cost_limit dollars, such as "$0.10". Required.
	Amount string `json:"amount"`
	// Unit is what is counted: `requests`, `tokens`, `input_tokens`, `output_tokens`,
	// `uncached_tokens`, `images`, `audio_seconds`, `video_seconds` or `concurrent`. Required, but for a cost_limit, which counts
	// `usd` alone.
	Unit Unit `json:"unit,omitempty"`
	// Window is `minute`, `hour`, `day`, `week`, `month` or a duration such as "90s".
	// Required but for `concurrent`.
	Window string `json:"window,omitempty"`
	// Rolling makes the window slide. Default: false.
	Rolling bool `json:"rolling,omitempty"`
	// Burst makes the rule a token bucket that holds this much and gets Amount back
	// in each window. Default: none.
	Burst string `json:"burst,omitempty"`
	// Shadow counts and reports, and never refuses. Default: false.
	Shadow bool `json:"shadow,omitempty"`
}

// Reject is the answer to a call that does not fit.
type Reject struct {
	// Status is the HTTP status, 400 to 599. Default: 429.
	Status int `json:"status,omitempty"`
	// Message replaces the text; `{http.llm.refusal.*}` placeholders are filled in.
	// Default: a text that names the rule.
	Message string `json:"message,omitempty"`
}

// Mode is how calls are admitted whose amount is known only afterwards.
type Mode string

// The modes.
const (
	ChargeAfter Mode = "charge_after" // while used < limit
	Reserve     Mode = "reserve"      // while used + held by others < limit
	Strict      Mode = "strict"       // while used + held + this call at worst <= limit
)

// rule is a limit that is ready to be checked.
type rule struct {
	words  string // without the amount: `tokens per hour`, `images per day (qwen*)`
	said   string // words as clients read them, where there are many globs
	window string // as in words: `hour`; empty for concurrent calls
	unit   Unit
	amount int64 // as configured, in what is counted: picodollars, milliseconds
	limit  int64 // the amount, or the burst of a token bucket
	length time.Duration
	shadow bool
	store  *store.Rule
	fixed  fixedHeaders
	block  *block // nil for a rule that counts every call
	model  string // whose own rule of the block it is; empty where all models count together
	others bool   // it is that of the models that share, of a block that counts each apart

	metered, media bool // as of its unit
	telling        bool // as of its window, see watched
	interned       unique.Handle[store.Rule]
}

// intern has the rule's counter go by the very text that a store keeps of its name: two
// names that are one piece of memory are compared at a glance, which each call does several
// times.
func (r *rule) intern() {
	r.interned = unique.Make(*r.store)
	counter := r.interned.Value()
	r.store = &counter
}

// slides tells whether the window has no beginning that counters have in common.
func (r *rule) slides() bool { return r.store.Window.Kind() == store.KindRolling }

// compile checks a config and returns its rules.
func (c *Config) compile(k *Kind) (*plan, error) {
	if err := checkName("name", c.Name); err != nil {
		return nil, err
	}
	if err := checkName("share", c.Share); err != nil {
		return nil, err
	}
	if c.ConsumerBased && len(c.Key) > 0 {
		return nil, at("key", errors.New("consumer_based and key exclude each other: an instance counts by one thing"))
	}
	if err := checkKey(c.Key); err != nil {
		return nil, err
	}
	if err := oneOf("mode", string(c.Mode), string(ChargeAfter), string(Reserve), string(Strict)); err != nil {
		return nil, err
	}
	if err := oneOf("unmetered", c.Unmetered, "deny", "allow"); err != nil {
		return nil, err
	}
	if err := oneOf("unlisted", c.Unlisted, "deny", "allow"); err != nil {
		return nil, err
	}
	if err := oneOf("headers", c.Headers, "on", "off"); err != nil {
		return nil, err
	}
	if rj := c.Reject; rj != nil && rj.Status != 0 && (rj.Status < 400 || rj.Status > 599) {
		return nil, fmt.Errorf("reject status %d is not between 400 and 599", rj.Status)
	}
	zone, err := loadZone(c.Timezone)
	if err != nil {
		return nil, err
	}
	p, err := c.plan(zone, k)
	if err != nil {
		return nil, err
	}
	if k.dollars() && len(c.UsageFields) > 0 {
		return nil, at("usage_fields", errors.New("usage_fields do not tell input from output, which have prices of their own"))
	}
	return p, c.checkFields(p)
}

// checkFields checks usage_fields, and that the rules count something by them.
func (c *Config) checkFields(p *plan) error {
	if len(c.UsageFields) == 0 {
		return nil
	}
	if _, err := usage.NewFields(c.UsageFields); err != nil {
		return within("usage_fields", err)
	}
	metered, output := false, false
	p.all(func(ru *rule) {
		metered = metered || ru.unit.Metered()
		output = output || ru.unit == OutputTokens
	})
	if output {
		return at("usage_fields", errors.New("usage_fields and limits of output_tokens exclude each other: the fields do not tell input from output"))
	}
	if !metered {
		return at("usage_fields", errors.New("usage_fields needs a limit that counts tokens, such as `limit 10k tokens per hour`"))
	}
	return nil
}

func (rc *Rule) compile(zone *time.Location, k *Kind) (*rule, error) {
	if k.dollars() && rc.Unit == "" {
		rc.Unit = USD
	}
	if !slices.Contains(k.units, rc.Unit) {
		return nil, fmt.Errorf("unit %q is none of %s", rc.Unit, join(k.units))
	}
	amount, err := rc.Unit.parse(rc.Amount)
	if err != nil {
		return nil, err
	}
	w, words, id, err := rc.window(zone)
	if err != nil {
		return nil, err
	}
	r := &rule{
		words: string(rc.Unit), window: words, unit: rc.Unit,
		amount: amount, limit: amount, shadow: rc.Shadow,
		length: w.Length(), store: &store.Rule{ID: string(rc.Unit), Window: w},
	}
	r.metered, r.media, r.telling = rc.Unit.Metered(), rc.Unit.Media(), tellsOf(w)
	if words != "" {
		r.words += " per " + words
		r.store.ID += " per " + id
	}
	r.said = r.words
	if rc.Burst != "" {
		if r.limit, err = rc.Unit.parse(rc.Burst); err != nil {
			return nil, fmt.Errorf("burst: %w", err)
		}
		r.store.Refill = amount
	}
	r.fixed = newFixedHeaders(r)
	r.intern()
	return r, nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if name == "Local" {
		return nil, errors.New("timezone Local differs from machine to machine: use an IANA name such as Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q is not an IANA name such as Europe/Berlin", name)
	}
	return zone, nil
}

// maxName bounds the length of the names of instances and pools.
const maxName = 128

func checkName(what, name string) error {
	switch {
	case name == "":
		return nil
	case strings.HasPrefix(name, "/") || strings.HasPrefix(name, "@"):
		return fmt.Errorf("%s %q must not start with / or @", what, name)
	case len(name) > maxName:
		return fmt.Errorf("%s %q is longer than %d bytes", what, name, maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
		return fmt.Errorf("%s %s must not contain blanks, control characters or braces", what, strconv.Quote(name))
	}
	return nil
}

func oneOf(what, got string, words ...string) error {
	if got == "" || slices.Contains(words, got) {
		return nil
	}
	return fmt.Errorf("%s %q is none of %s", what, got, strings.Join(words, ", "))
}

func join(units []Unit) string {
	words := make([]string, len(units))
	for i, u := range units {
		words[i] = string(u)
	}
	return strings.Join(words, ", ")
}

func (rj *Reject) status() int {
	if rj == nil || rj.Status == 0 {
		return http.StatusTooManyRequests
	}
	return rj.Status
}

package limit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// quota is the state of one of the caller's own rules.
type quota struct {
	rule   *rule
	result *store.Result
}

// tighter tells whether less is left of q than of p, in proportion.
func (q quota) tighter(p quota) bool {
	if q.result.Exceeded != p.result.Exceeded {
		return q.result.Exceeded
	}
	if a, b := q.share(), p.share(); a != b {
		return a < b
	}
	return q.rule.length > p.rule.length
}

// share is how much of the limit is left. Of none, which an operator may set for a
// consumer, nothing is.
func (q quota) share() float64 {
	return float64(q.left()) / float64(max(1, q.result.Limit))
}

func (q quota) left() int64 {
	if q.result.Exceeded {
		return 0
	}
	return q.result.Remaining()
}

// reset is the whole seconds until all is free again, at least one.
func (q quota) reset(now time.Time) int64 {
	if q.result.ResetAt.IsZero() {
		return 1
	}
	return seconds(q.result.ResetAt.Sub(now))
}

// seconds rounds up, and stays between one second and the longest wait that a
// JavaScript client can count in a timer.
func seconds(d time.Duration) int64 {
	const most = math.MaxInt32 / 1000
	if d > most*time.Second {
		return most
	}
	return max(roundUp(d), 1)
}

// roundUp is a duration in whole seconds.
func roundUp(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// field is an amount as structured fields have them (RFC 9651, 3.3.1): whole, and of
// fifteen digits at most, so that dollars are told in millionths, rounded down.
func (u Unit) field(n int64) string {
	switch {
	case u == USD:
		n /= int64(money.Dollar / 1_000_000)
	case u.Seconds():
		n /= milli
	}
	return strconv.FormatInt(min(n, 999_999_999_999_999), 10)
}

// The names of header fields, in the form that http.Header keeps them.
const (
	hPolicy            = "Ratelimit-Policy"
	hRateLimit         = "Ratelimit"
	hLimit             = "X-Ratelimit-Limit"
	hRemaining         = "X-Ratelimit-Remaining"
	hReset             = "X-Ratelimit-Reset"
	hLimitRequests     = "X-Ratelimit-Limit-Requests"
	hRemainingRequests = "X-Ratelimit-Remaining-Requests"
	hResetRequests     = "X-Ratelimit-Reset-Requests"
	hLimitTokens       = "X-Ratelimit-Limit-Tokens"
	hRemainingTokens   = "X-Ratelimit-Remaining-Tokens"
	hResetTokens       = "X-Ratelimit-Reset-Tokens"
	hLimitDollars      = "X-Ratelimit-Cost-Limit-Dollars"
	hRemainingDollars  = "X-Ratelimit-Cost-Remaining-Dollars"
)

// fixedHeaders are the values that are the same for all calls under a rule. They
// are shared by answers and never written to; cap equals len, so that adding to
// them copies.
type fixedHeaders struct {
	policy []string
	limit  []string
	prefix string // of RateLimit
}

func newFixedHeaders(r *rule) fixedHeaders {
	return fixedHeaders{
		policy: []string{r.policy(r.limit)},
		limit:  []string{r.unit.number(r.limit)},
		prefix: strconv.Quote(r.words) + ";r=",
	}
}

// policy is a rule's part of RateLimit-Policy.
func (r *rule) policy(limit int64) string {
	policy := strconv.Quote(r.words) + ";q=" + r.unit.field(limit)
	if r.unit == USD {
		policy += `;qu="microdollars"`
	}
	if r.length > 0 {
		policy += ";w=" + strconv.FormatInt(roundUp(r.length), 10)
	}
	return policy
}

// writeQuotas tells what is left of the tightest of the caller's own rules, and takes
// away what the provider says: that is about the operator's account.
func writeQuotas(h http.Header, qs []quota, now time.Time) {
	var all, requests, tokens, dollars *quota
	for i := range qs {
		q := &qs[i]
		all = tightest(all, q)
		switch {
		case q.rule.unit == Requests:
			requests = tightest(requests, q)
		case q.rule.unit == USD:
			dollars = tightest(dollars, q)
		case q.rule.unit.Metered():
			tokens = tightest(tokens, q)
		}
	}
	dropProviders(h)
	if all == nil {
		return
	}

	values := make([]string, 0, 8)
	add := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	left, reset := all.rule.unit.number(all.left()), strconv.FormatInt(all.reset(now), 10)
	h[hPolicy] = policyValue(all)
	add(hRateLimit, all.rule.fixed.prefix+all.rule.unit.field(all.left())+";t="+reset)
	h[hLimit] = limitValue(all)
	add(hRemaining, left)
	add(hReset, reset)
	if requests != nil {
		h[hLimitRequests] = limitValue(requests)
		add(hRemainingRequests, strconv.FormatInt(requests.left(), 10))
		add(hResetRequests, span(requests.result.ResetAt.Sub(now)))
	}
	if tokens != nil {
		h[hLimitTokens] = limitValue(tokens)
		add(hRemainingTokens, strconv.FormatInt(tokens.left(), 10))
		add(hResetTokens, span(tokens.result.ResetAt.Sub(now)))
	}
	if dollars != nil {
		h[hLimitDollars] = limitValue(dollars)
		add(hRemainingDollars, USD.number(dollars.left()))
	}
}

func tightest(a, b *quota) *quota {
	if a == nil || b.tighter(*a) {
		return b
	}
	return a
}

// policyValue is the policy with the limit that was checked.
func policyValue(q *quota) []string {
	if q.result.Limit == q.rule.limit {
		return q.rule.fixed.policy
	}
	return []string{q.rule.policy(q.result.Limit)}
}

// limitValue is the limit that was checked, which may be the consumer's own.
func limitValue(q *quota) []string {
	if q.result.Limit == q.rule.limit {
		return q.rule.fixed.limit
	}
	return []string{q.rule.unit.number(q.result.Limit)}
}

// span is a duration as OpenAI writes it: `6m0s`, `850ms`. It rounds up, so that
// whoever waits that long does not come too early.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return (d + time.Millisecond - 1).Truncate(time.Millisecond).String()
	case d > math.MaxInt64-time.Second:
		return d.String()
	default:
		return (d + time.Second - 1).Truncate(time.Second).String()
	}
}

// dropProviders deletes the fields by which providers tell their own limits.
func dropProviders(h http.Header) {
	delete(h, hRateLimit)
	for name := range h {
		if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit-") ||
			strings.HasPrefix(name, "Anthropic-Ratelimit-") {
			delete(h, name)
		}
	}
}

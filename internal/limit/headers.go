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
func (u Unit) field(n int64) string { return string(u.appendField(nil, n)) }

// appendField appends what field returns.
func (u Unit) appendField(b []byte, n int64) []byte {
	switch {
	case u == USD:
		n /= int64(money.Dollar / 1_000_000)
	case u.Seconds():
		n /= milli
	}
	return strconv.AppendInt(b, min(n, 999_999_999_999_999), 10)
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

// fixedHeaders are the values that are the same for all calls under a rule. They are
// strings: the slice that stands in a header belongs to the answer, since handlers further
// out replace what is in it where it stands.
type fixedHeaders struct {
	policy string
	limit  string
	prefix string // of RateLimit
}

func newFixedHeaders(r *rule) fixedHeaders {
	return fixedHeaders{
		policy: r.policy(r.limit),
		limit:  r.unit.number(r.limit),
		prefix: strconv.Quote(r.said) + ";r=",
	}
}

// policy is a rule's part of RateLimit-Policy.
func (r *rule) policy(limit int64) string {
	policy := strconv.Quote(r.said) + ";q=" + r.unit.field(limit)
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

	// The text is apart from the fields, which go into the header and so to the heap.
	var room [fieldsRoom]byte
	var f fields
	b := room[:0]
	reset := all.reset(now)
	f.put(hPolicy, policyValue(all))
	b = append(b, all.rule.fixed.prefix...)
	b = all.rule.unit.appendField(b, all.left())
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, reset, 10)
	f.end(hRateLimit, len(b))
	f.put(hLimit, limitValue(all))
	b = all.rule.unit.appendNumber(b, all.left())
	f.end(hRemaining, len(b))
	b = strconv.AppendInt(b, reset, 10)
	f.end(hReset, len(b))
	if requests != nil {
		f.put(hLimitRequests, limitValue(requests))
		b = strconv.AppendInt(b, requests.left(), 10)
		f.end(hRemainingRequests, len(b))
		b = appendSpan(b, requests.result.ResetAt.Sub(now))
		f.end(hResetRequests, len(b))
	}
	if tokens != nil {
		f.put(hLimitTokens, limitValue(tokens))
		b = strconv.AppendInt(b, tokens.left(), 10)
		f.end(hRemainingTokens, len(b))
		b = appendSpan(b, tokens.result.ResetAt.Sub(now))
		f.end(hResetTokens, len(b))
	}
	if dollars != nil {
		f.put(hLimitDollars, limitValue(dollars))
		b = USD.appendNumber(b, dollars.left())
		f.end(hRemainingDollars, len(b))
	}
	f.set(h, string(b))
}

const (
	// fieldsMost is how many fields an answer has whose values are its own, readyMost how
	// many whose values there are already.
	fieldsMost = 8
	readyMost  = 5
	// fieldsRoom is what the former take, as a rule.
	fieldsRoom = 256
)

// fields are header fields that are allocated together: the values that are made for this
// answer stand one after the other in one text, and all have their slots in one slice.
type fields struct {
	names [fieldsMost]string
	ends  [fieldsMost]int
	n     int
	ready [readyMost]struct{ name, value string }
	m     int
}

// put sets a field to a value that there is already.
func (f *fields) put(name, value string) {
	f.ready[f.m].name, f.ready[f.m].value = name, value
	f.m++
}

// end names the field whose value is what the text has, up to an offset, since the last.
func (f *fields) end(name string, end int) {
	f.names[f.n], f.ends[f.n] = name, end
	f.n++
}

// set sets all of them. The capacity of each equals its length, so that adding to one
// copies.
func (f *fields) set(h http.Header, text string) {
	values := make([]string, 0, f.n+f.m)
	slot := func(value string) []string {
		values = append(values, value)
		return values[len(values)-1 : len(values) : len(values)]
	}
	start := 0
	for i, name := range f.names[:f.n] {
		h[name] = slot(text[start:f.ends[i]])
		start = f.ends[i]
	}
	for _, r := range f.ready[:f.m] {
		h[r.name] = slot(r.value)
	}
}

func tightest(a, b *quota) *quota {
	if a == nil || b.tighter(*a) {
		return b
	}
	return a
}

// policyValue is the policy with the limit that was checked.
func policyValue(q *quota) string {
	if q.result.Limit == q.rule.limit {
		return q.rule.fixed.policy
	}
	return q.rule.policy(q.result.Limit)
}

// limitValue is the limit that was checked, which may be the consumer's own.
func limitValue(q *quota) string {
	if q.result.Limit == q.rule.limit {
		return q.rule.fixed.limit
	}
	return q.rule.unit.number(q.result.Limit)
}

// span is a duration as OpenAI writes it: `6m0s`, `850ms`. It rounds up, so that whoever
// waits that long does not come too early.
func span(d time.Duration) string { return string(appendSpan(nil, d)) }

// appendSpan appends what span returns.
func appendSpan(b []byte, d time.Duration) []byte {
	switch {
	case d <= 0:
		return append(b, "0s"...)
	case d <= time.Second-time.Millisecond:
		b = strconv.AppendInt(b, int64((d+time.Millisecond-1)/time.Millisecond), 10)
		return append(b, "ms"...)
	case d > math.MaxInt64-time.Second:
		return append(b, d.String()...)
	}
	n := roundUp(d)
	if n >= 3600 {
		b = append(strconv.AppendInt(b, n/3600, 10), 'h')
	}
	if n >= 60 {
		b = append(strconv.AppendInt(b, n/60%60, 10), 'm')
	}
	return append(strconv.AppendInt(b, n%60, 10), 's')
}

// dropProviders deletes the fields by which providers tell their own limits.
func dropProviders(h http.Header) {
	for name := range h {
		var of bool
		switch name[0] {
		case 'X':
			of = strings.HasPrefix(name, "X-Ratelimit-")
		case 'R':
			of = name == hRateLimit || strings.HasPrefix(name, "Ratelimit-")
		case 'A':
			of = strings.HasPrefix(name, "Anthropic-Ratelimit-")
		}
		if of {
			delete(h, name)
		}
	}
}

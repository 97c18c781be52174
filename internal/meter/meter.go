// Package meter watches a call on its way through Caddy: it reads what a request
// asks for, taps the response for what it used, and tells the limiters when the
// call has ended, exactly once.
//
// However many limiters stand in a route, a call has one Call, one tap and one
// end.
package meter

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Defaults of Options.
const (
	DefaultMaxBody     = 64 << 20
	DefaultMaxBuffered = 512 << 20
	DefaultDrain       = 2 * time.Second
)

// Options say how calls are metered. The zero value of a field means its default.
type Options struct {
	// MaxBody bounds a request body that must be read, in bytes; more is answered
	// with 413. The default is 64 MiB.
	MaxBody int64
	// MaxBuffered bounds the bodies that are held at one time, in bytes; more is
	// answered with 503. The default is 512 MiB.
	MaxBuffered int64
	// Drain is how long the upstream is read on after the client has gone, so that it
	// says what was used; then it is cancelled. The default is two seconds; negative is
	// not at all.
	Drain time.Duration
	// LeaveUsage stops the meter from asking for usage where a stream would carry
	// none.
	LeaveUsage bool
	// TrustDuration are header fields by which somebody in front of the gateway says how
	// many seconds recordings and videos play. The default is none: clients may say
	// anything.
	TrustDuration []string
}

// Meter is what the calls of a process share. It outlives configs, as calls do.
type Meter struct {
	now        func() time.Time
	metrics    *metrics.Set
	maxBody    atomic.Int64
	leaveUsage atomic.Bool
	trusted    atomic.Pointer[trusted] // nil if nobody is
	drain      atomic.Int64            // in nanoseconds
	drains     drains
	live       live
	bodies     budget
	learned    learned
	refusing   refusing
}

// New returns a meter with the default options.
func New() *Meter {
	m := &Meter{now: time.Now, metrics: metrics.Process}
	m.SetOptions(Options{})
	return m
}

// SetOptions changes the options for the calls that come.
func (m *Meter) SetOptions(o Options) {
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxBuffered == 0 {
		o.MaxBuffered = DefaultMaxBuffered
	}
	if o.Drain == 0 {
		o.Drain = DefaultDrain
	}
	m.maxBody.Store(o.MaxBody)
	m.drain.Store(int64(o.Drain))
	m.bodies.max.Store(o.MaxBuffered)
	// a quarter, but room for the largest body twice, while it is copied
	m.bodies.share.Store(max(o.MaxBuffered/4, min(2*o.MaxBody+2, o.MaxBuffered)))
	m.leaveUsage.Store(o.LeaveUsage)
	if len(o.TrustDuration) == 0 {
		m.trusted.Store(nil)
	} else {
		m.trusted.Store(newTrusted(o.TrustDuration))
	}
}

// Call returns the call that a request belongs to. Each pass through a route has
// one: where an error route takes over after the first has ended, it begins anew.
func (m *Meter) Call(r *http.Request) *Call { return m.CallIn(r, VarsOf(r)) }

// CallIn is Call for who has the variables of the request already.
func (m *Meter) CallIn(r *http.Request, vars Vars) *Call {
	at := carriedBy(vars)
	if at != nil && !at.call.ended {
		return at.call
	}
	c := &Call{m: m, Endpoint: usage.Identify(r.Method, r.URL, r.Header)}
	c.repl, _ = r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	server := serverOf(r)
	c.route = routeOf(server, r.Host, c.Endpoint.API)
	c.again = at != nil || server != nil && server.Errors != nil && len(server.Errors.Routes) > 0
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete:
	default:
		c.writes = true
	}
	if c.Endpoint.Class == usage.Realtime && (r.ProtoMajor != 1 || r.ContentLength != 0) {
		c.Endpoint.Class = usage.Upgrade // there is no connection of its own, or more than it
	}
	if at != nil {
		before := at.call
		c.sent, c.lent, c.encoding, c.put, c.window = before.sent, before.lent, before.encoding, before.put, before.window
	} else {
		at = &c.first
		if vars != nil {
			vars[callVar] = at
		}
	}
	c.carried, at.call = at, c
	return c
}

// RequestModel returns the model that a request names, empty if it names none. The
// body is read for it and put back; release must be called when the request has
// been served, also after an error. Errors are those of [Call.Inspect].
func (m *Meter) RequestModel(r *http.Request) (model string, release func(), err error) {
	c := m.Call(r)
	if err := c.Inspect(r); err != nil {
		return "", c.leave, err
	}
	return c.Model(), c.leave, nil
}

// refusing remembers which routes lead to an upstream that does not know
// stream_options, by the model asked for.
type refusing struct {
	mu    sync.RWMutex
	until map[refuser]time.Time
}

// refuser is a route, as the client names it.
type refuser struct{ host, model string }

const (
	// refusingFor is how long an upstream is left alone; it may learn.
	refusingFor = time.Hour
	refusingMax = 1000
	// hostMax is the longest host name that is remembered, in bytes.
	hostMax = 255
)

func (f *refusing) has(k refuser, now time.Time) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return now.Before(f.until[k])
}

// add remembers a route. Names are the client's: there is an end to their number
// and to their length.
func (f *refusing) add(k refuser, now time.Time) {
	if len(k.host) > hostMax || len(k.model) > modelMax {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil || len(f.until) >= refusingMax {
		// those still in use come back at the price of one more call each
		f.until = make(map[refuser]time.Time)
	}
	f.until[k] = now.Add(refusingFor)
}

func (c *Call) refuser(r *http.Request) refuser { return refuser{r.Host, c.Model()} }

package llmapp

import (
	"net"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// RolePricer is the part of a handler that says what calls cost.
const RolePricer Role = "pricer"

// Lookout is a handler that needs to know what its calls will come to further in.
type Lookout interface {
	// LookAhead is called once, and may be at a time at which calls are served.
	LookAhead(a Ahead)
}

// Ahead is what a call comes to behind a place in the routes.
type Ahead struct {
	// Pricers are those of which one will have the last word on what the call costs.
	// Unless Always is set, the call may also pass by all of them.
	Pricers []meter.Pricer
	Always  bool
	// Upstream is the name of the host that calls are passed on to; empty if there are
	// several, or none that the config names.
	Upstream string
	// Upstreams are all hosts that calls may be passed on to, as far as prices tell them
	// apart; the empty one is any host that no vendor is known by.
	Upstreams []string
	// Instances are the limiters that some calls pass, in the order of the routes, a pool
	// once.
	Instances []Instance
}

// pricing is a handler that says what calls cost.
type pricing interface {
	// Pricer is nil if the handler leaves that to others.
	Pricer() meter.Pricer
}

// sight is a place at which a lookout stands, and what it sees from there.
type sight struct {
	lookout   Lookout
	some      []meter.Pricer // that some calls meet
	all       meter.Pricer   // that all calls meet before those; nil if there is none
	upstreams []string       // hosts; empty for one that is not known
	instances []Instance
}

// opening is a sight that reaches to a place in the chain.
type opening struct {
	*sight
	partly bool // not all calls that pass the lookout come to this place
}

// watch notes that a lookout stands at a place.
func (w *walk) watch(l Lookout, at *position) {
	if w.standalone && slices.ContainsFunc(w.sights, func(have *sight) bool { return have.lookout == l }) {
		return // its route has been walked from where it is invoked
	}
	s := &sight{lookout: l}
	w.sights = append(w.sights, s)
	at.open = append(slices.Clip(at.open), opening{sight: s})
}

// priced notes that a pricer can be seen from lookouts further out.
func (at *position) priced(p meter.Pricer) {
	for _, o := range at.open {
		switch {
		case !o.partly:
			o.all, o.some = p, nil // it has the last word over those before it
		case o.all != p && !slices.Contains(o.some, p):
			o.some = append(o.some, p)
		}
	}
}

// proxied notes that an upstream can be seen from lookouts further out.
func (at *position) proxied(rp *reverseproxy.Handler) {
	hosts := make([]string, 0, len(rp.Upstreams))
	for _, u := range rp.Upstreams {
		hosts = append(hosts, dialed(u.Dial))
	}
	if rp.DynamicUpstreams != nil || len(hosts) == 0 {
		hosts = []string{""}
	}
	for _, o := range at.open {
		for _, h := range hosts {
			if !slices.Contains(o.upstreams, h) {
				o.upstreams = append(o.upstreams, h)
			}
		}
	}
}

// dialed is the host of an address; empty if it is decided only when a call comes.
func dialed(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsAny(host, "{/") {
		return ""
	}
	return host
}

// partial is a place that not all calls come to that have come so far.
func (at position) partial() position {
	open := make([]opening, len(at.open))
	for i, o := range at.open {
		open[i] = opening{o.sight, true}
	}
	at.open = open
	return at
}

// join adds the openings of a place that calls may come from.
func (at *position) join(open []opening) {
	for _, o := range open {
		if !slices.ContainsFunc(at.open, func(have opening) bool { return have.sight == o.sight }) {
			at.open = append(slices.Clip(at.open), o)
		}
	}
}

// apart takes hosts that belong to no vendor for one.
func apart(hosts []string) (some []string) {
	for _, h := range hosts {
		if prices.ProviderOf(usage.UnknownAPI, h) == "" {
			h = ""
		}
		if !slices.Contains(some, h) {
			some = append(some, h)
		}
	}
	return some
}

// tell tells lookouts what they see, over all the places at which each of them stands.
func tell(sights []*sight) {
	for i, s := range sights {
		if slices.ContainsFunc(sights[:i], func(before *sight) bool { return before.lookout == s.lookout }) {
			continue
		}
		a := Ahead{Always: true}
		var upstreams []string
		for _, other := range sights[i:] {
			if other.lookout != s.lookout {
				continue
			}
			a.Always = a.Always && other.all != nil
			for _, p := range append([]meter.Pricer{other.all}, other.some...) {
				if p != nil && !slices.Contains(a.Pricers, p) {
					a.Pricers = append(a.Pricers, p)
				}
			}
			upstreams = append(upstreams, other.upstreams...)
			for _, in := range other.instances {
				if !slices.ContainsFunc(a.Instances, func(have Instance) bool { return have.ID() == in.ID() }) {
					a.Instances = append(a.Instances, in)
				}
			}
		}
		slices.Sort(upstreams)
		if upstreams = slices.Compact(upstreams); len(upstreams) == 1 {
			a.Upstream = upstreams[0]
		}
		a.Upstreams = apart(upstreams)
		s.lookout.LookAhead(a)
	}
}

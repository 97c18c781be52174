package prices

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// kind is all that decides which row prices a call, but for the time.
type kind struct {
	api                               usage.API
	provider, host, requested, served string
}

// finding is the row that prices calls of a kind, for as long as no row of the table comes
// into force or ends.
type finding struct {
	kind
	provider    string // the family of who is called
	match       Match
	from, until time.Time // until is zero where nothing changes any more
}

// holds tells whether the finding is that of a moment.
func (f *finding) holds(at time.Time) bool {
	return !at.Before(f.from) && (f.until.IsZero() || at.Before(f.until))
}

const (
	recallSets = 64
	recallWays = 4
	// recallLongest bounds the names of a kind that is remembered, in bytes. All in use
	// are far shorter.
	recallLongest = 400
)

// recall remembers what was found last, for calls are of a few kinds, and to match names
// takes longer than to price a call by the row. Its size is fixed: what clients name may
// take the place of what others do, which is then found again. The zero value remembers
// nothing yet. It is safe for concurrent use.
type recall struct {
	sets [recallSets][recallWays]atomic.Pointer[finding]
}

// recallSeed keeps clients from choosing names that take each other's places.
var recallSeed = maphash.MakeSeed()

// hash spreads kinds over the sets. Providers and APIs are few, and tell little.
func (k *kind) hash() uint64 {
	h := maphash.String(recallSeed, k.requested)
	if k.served != "" {
		h = h*31 + maphash.String(recallSeed, k.served)
	}
	if k.host != "" {
		h = h*31 + maphash.String(recallSeed, k.host)
	}
	return h
}

// find is what [Book.Resolve] makes of a call. It must not be changed.
func (b *Book) find(c *Call) *finding {
	k := kind{api: c.API, provider: c.Provider, host: c.Host, requested: c.Requested, served: c.Served}
	h := k.hash()
	set := &b.recall.sets[h%recallSets]
	for i := range set {
		if f := set[i].Load(); f != nil && f.kind == k && f.holds(c.At) {
			return f
		}
	}
	f := &finding{kind: k, provider: c.provider()}
	f.match = b.Resolve(f.provider, c.Served, c.Requested, c.At)
	if len(k.provider)+len(k.host)+len(k.requested)+len(k.served) > recallLongest {
		return f
	}
	f.from, f.until = b.table.unchanged(c.At)
	f.keepNames()
	at := &set[h/recallSets%recallWays]
	for i := range set {
		if old := set[i].Load(); old == nil || old.kind == k {
			at = &set[i]
			break
		}
	}
	at.Store(f)
	return f
}

// keepNames has the finding own its names, which may be parts of a body or a path. They
// are one piece of memory: each is compared for each call.
func (f *finding) keepNames() {
	k := &f.kind
	rest := strings.Clone(k.provider + k.host + k.requested + k.served) // a sum of one is that one
	for _, name := range [...]*string{&k.provider, &k.host, &k.requested, &k.served} {
		n := len(*name)
		*name, rest = rest[:n], rest[n:]
	}
}

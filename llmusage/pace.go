package llmusage

import (
	"sync"
	"time"
)

const (
	// perSecond is how often one caller is answered in a second. To ask is free, and an
	// answer may ask the store.
	perSecond = 20
	// callersMost bounds the callers of one second that are remembered, some 100 bytes
	// each. Who comes after so many has to wait for the next second.
	callersMost = 1 << 16
)

// pace counts how often callers have asked in the current second. The zero value has seen
// nobody.
type pace struct {
	mu     sync.Mutex
	second int64 // Unix
	asked  map[caller]int
}

// admits tells whether a caller may ask once more at this time.
func (p *pace) admits(c caller, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := now.Unix(); s != p.second || p.asked == nil {
		p.second, p.asked = s, make(map[caller]int)
	}
	n, known := p.asked[c]
	if n >= perSecond || !known && len(p.asked) >= callersMost {
		return false
	}
	p.asked[c] = n + 1
	return true
}

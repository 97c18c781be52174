package llmusage

import (
	"sync"
	"time"
)

// perSecond is how often one caller is answered in a second. To ask is free, and each
// answer asks the store.
const perSecond = 20

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
	if p.asked[c] >= perSecond {
		return false
	}
	p.asked[c]++
	return true
}

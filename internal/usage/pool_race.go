//go:build race

package usage

import "sync"

// pool keeps what is lent out. Under the race detector a sync.Pool throws some of that away
// by chance, and tests that count allocations would fail by chance.
type pool[T any] struct {
	make func() *T
	mu   sync.Mutex
	free []*T
}

func (p *pool[T]) borrow() *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		v := p.free[n-1]
		p.free = p.free[:n-1]
		return v
	}
	return p.make()
}

func (p *pool[T]) giveBack(v *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, v)
}

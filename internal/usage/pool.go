//go:build !race

package usage

import "sync"

// pool keeps what is lent out. Each processor has its own, so that what is borrowed is in
// its cache.
type pool[T any] struct {
	make func() *T
	free sync.Pool
}

func (p *pool[T]) borrow() *T {
	if v, ok := p.free.Get().(*T); ok {
		return v
	}
	return p.make()
}

func (p *pool[T]) giveBack(v *T) { p.free.Put(v) }

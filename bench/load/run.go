package load

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Server is one of the two that are compared.
type Server struct {
	Addr    string
	Request *Request
	// CPU is the processor time that the server's process has used so far.
	CPU func() (time.Duration, error)

	conns  []*conn
	next   atomic.Int64 // number of the next call
	slices []slice
}

// Load is how servers are loaded.
type Load struct {
	// Workers is how many calls run at one time, each on a connection of its own.
	Workers int
	// Rate is how many calls begin in a second, whether those before have ended or not,
	// as far as there are workers. Times count from when a call was due. 0 begins a call
	// when the one before has ended.
	Rate float64
	// Consumers is how many take turns.
	Consumers int
	// Slice is how long a server is loaded until it is the other's turn. 0 has each worker
	// make one call, for streams that are longer than any slice.
	Slice time.Duration
	// Pairs is how many slices each server gets.
	Pairs int
}

// slice is one turn of a server.
type slice struct {
	calls, events, reads int64
	took, cpu            time.Duration
	times                []time.Duration // of each call
	err                  error
}

func (s *slice) add(o *slice) {
	s.calls += o.calls
	s.events += o.events
	s.reads += o.reads
	s.times = append(s.times, o.times...)
	if s.err == nil {
		s.err = o.err
	}
}

// Warm loads one server for a time, or for a call of each worker, and forgets the figures.
func (l *Load) Warm(s *Server, d time.Duration) error {
	warm := *l
	warm.Slice = d
	return warm.turn(s).err
}

// Compare has both servers take turns: a b, b a, a b … so that neither always comes after
// the other, and what disturbs the machine disturbs both.
func (l *Load) Compare(a, b *Server) (*Result, error) {
	both := [2]*Server{a, b}
	var since [2]time.Duration // processor time at the start of the last turn
	settle := func(i int) error {
		// What a server does after its turn, such as collecting garbage, belongs to it.
		s := both[i]
		now, err := s.CPU()
		if n := len(s.slices); n > 0 {
			s.slices[n-1].cpu = now - since[i]
		}
		since[i] = now
		return err
	}
	for pair := range l.Pairs {
		for k := range both {
			i := (k + pair) % 2
			if err := settle(i); err != nil {
				return nil, err
			}
			t := l.turn(both[i])
			if t.err != nil {
				return nil, t.err
			}
			both[i].slices = append(both[i].slices, *t)
		}
	}
	for i := range both {
		if err := settle(i); err != nil {
			return nil, err
		}
	}
	return newResult(a.slices, b.slices), nil
}

// Close closes the connections.
func (s *Server) Close() {
	for _, cn := range s.conns {
		cn.close()
	}
}

// turn loads a server for a slice, and lets every call that it began end.
func (l *Load) turn(s *Server) *slice {
	for len(s.conns) < l.Workers {
		s.conns = append(s.conns, &conn{addr: s.Addr, request: s.Request})
	}
	var wg sync.WaitGroup
	var started atomic.Int64
	per := make([]slice, l.Workers)
	begin := time.Now()
	for w := range l.Workers {
		wg.Go(func() {
			for {
				due, more := l.due(begin, started.Add(1)-1)
				if !more {
					return
				}
				if !l.call(s, s.conns[w], due, &per[w]) || l.Slice == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	sum := &slice{took: time.Since(begin)}
	for i := range per {
		sum.add(&per[i])
	}
	slices.Sort(sum.times)
	return sum
}

// due waits until the nth call of a slice is to begin. more is false if it is too late
// for another.
func (l *Load) due(begin time.Time, n int64) (due time.Time, more bool) {
	due = time.Now()
	if l.Rate > 0 {
		due = begin.Add(time.Duration(float64(n) / l.Rate * float64(time.Second)))
	}
	if l.Slice > 0 && due.Sub(begin) >= l.Slice {
		return due, false
	}
	if l.Rate > 0 {
		time.Sleep(time.Until(due))
	}
	return due, true
}

// call makes one call. It reports whether that went well.
func (l *Load) call(s *Server, cn *conn, due time.Time, sum *slice) bool {
	// a prime far from any power of two, so that neighbours in time are not neighbours
	// in memory
	const stride = 15_485_863
	consumer := 0
	if l.Consumers > 1 {
		consumer = int(s.next.Add(1) * stride % int64(l.Consumers))
	}
	a, err := cn.do(consumer)
	if err != nil {
		sum.err = err
		return false
	}
	took := time.Since(due)
	if s.Request.stream {
		took = a.first.Sub(due) // the rest is the provider's pace
		sum.reads += a.reads
	}
	sum.calls++
	sum.events += a.events
	sum.times = append(sum.times, took)
	return true
}

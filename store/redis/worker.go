package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// workers send what nobody waits for.
	workers = 2
	// linger is how long they let such things gather.
	linger = 2 * time.Millisecond
	// pipelined is how many entities' batches go in one round trip.
	pipelined = 32
)

// worker sends what is pending, and again what is in doubt, off the callers' paths.
type worker struct {
	s    *Store
	wake chan struct{}
	quit chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	running  bool
	stopped  bool
	listed   []*queue
	failures int // pipelines that failed since one did not
	resumed  chan struct{}
	check    chan struct{}
}

func (w *worker) init(s *Store) {
	w.s, w.wake, w.quit, w.check = s, make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	w.resumed = make(chan struct{})
}

// list has a worker come by for a queue. Its shard is locked.
func (w *worker) list(q *queue) {
	if q.listed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	q.listed = true
	w.listed = append(w.listed, q)
	w.start()
	w.hurry()
}

// start starts the goroutines if they do not run. The worker is locked.
func (w *worker) start() {
	if w.running || w.stopped {
		return
	}
	w.running = true
	for range workers {
		w.done.Go(w.send)
	}
	w.done.Go(w.keepLease)
}

func (w *worker) hurry() {
	select {
	case w.wake <- struct{}{}:
	default: // it is to wake anyway
	}
}

func (w *worker) checkLease() {
	select {
	case w.check <- struct{}{}:
	default: // it is to check anyway
	}
}

// later has a worker come by for a queue that has failed, after a while that grows.
// Its shard is locked.
func (w *worker) later(q *queue) {
	q.failures++
	if q.waking {
		return
	}
	q.waking = true
	time.AfterFunc(retryDelay(q.failures), func() {
		q.shard.mu.Lock()
		defer q.shard.mu.Unlock()
		q.waking = false
		w.list(q)
	})
}

// connected starts what a store that has reached its server needs.
func (w *worker) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
}

func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	close(w.quit)
	w.done.Wait()
}

func (w *worker) succeeded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = 0
}

func (w *worker) keepLease() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.check:
		case <-w.quit:
			return
		}
		w.s.renewLease()
	}
}

func (w *worker) send() {
	for {
		select {
		case <-w.wake:
		case <-w.quit:
			return
		}
		if !w.pause(linger, nil) {
			return
		}
		for {
			queues, resumed := w.next()
			if len(queues) == 0 {
				break
			}
			if w.s.flush(queues) {
				continue
			}
			w.mu.Lock()
			w.failures++
			d := retryDelay(w.failures)
			w.mu.Unlock()
			if !w.pause(d, resumed) {
				return
			}
		}
	}
}

// resume ends pauses, since the server answers again.
func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = 0
	close(w.resumed)
	w.resumed = make(chan struct{})
}

// pause ends early if resumed is closed. It returns false if the worker is to stop.
func (w *worker) pause(d time.Duration, resumed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-resumed:
		return true
	case <-w.quit:
		return false
	}
}

// next takes some queues off the list, and wakes the other worker for the rest.
// resumed is what ends a pause after them.
func (w *worker) next() (queues []*queue, resumed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.listed), pipelined)
	queues = w.listed[:n:n]
	if w.listed = w.listed[n:]; len(w.listed) == 0 {
		w.listed = nil
	} else {
		w.hurry()
	}
	return queues, w.resumed
}

// errand is a batch on its way.
type errand struct {
	q   *queue
	b   *batch
	cmd command
}

// flush sends what is pending of the queues in one round trip. It returns false if
// the server could not be reached.
func (s *Store) flush(queues []*queue) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	r, err := s.replica(ctx)
	if err != nil {
		for _, q := range queues {
			s.postpone(q, err)
		}
		return false
	}
	pipe := s.client.Pipeline()
	errands := make([]errand, 0, len(queues))
	for _, q := range queues {
		if b := s.due(q, r); b != nil {
			cmd := s.apply.call(ctx, q.key, b.args)
			_ = pipe.Process(ctx, cmd) // queues only
			errands = append(errands, errand{q, b, cmd})
		}
	}
	if len(errands) == 0 {
		return true
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	reached := false
	for _, e := range errands {
		reply, err := s.apply.text(ctx, s.client, e.cmd)
		reached = reached || err == nil || goredis.HasErrorPrefix(err, "")
		if next := s.answer(e.q, e.b, reply, err); next != nil {
			go s.drive(e.q, next)
		}
	}
	return reached
}

// due returns the batch of a queue that is to be sent, if there is one.
func (s *Store) due(q *queue, r *replica) *batch {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	q.listed = false
	switch {
	case q.batch != nil && q.batch.doubt && !q.batch.flying:
		s.resend(q)
		return q.batch
	case q.batch == nil && q.has():
		return s.build(q, r)
	}
	q.idle()
	return nil
}

// postpone tells those who wait that the server cannot be reached, and has the
// worker come by again.
func (s *Store) postpone(q *queue, err error) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	q.listed = false
	if q.batch == nil {
		s.turnAway(q, err)
	}
	if q.batch != nil || q.has() {
		s.work.later(q)
		return
	}
	q.idle()
}

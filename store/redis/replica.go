package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Replicas have small numbers, leased in Redis: the lowest that is free. So the
// fields that remember their last batches stay few, however often they restart.

const (
	// leased is how long a number is kept for a replica that does not come back: for
	// longer than a weekend, since of a batch that was in doubt when it went nobody
	// could tell any more whether it was applied. It is leasedFirst if the replica does
	// not even live to renew its lease: one that crashes over and over must not use
	// numbers up.
	leased      = 96 * time.Hour
	leasedFirst = time.Hour
	// renewEvery is how often a lease is renewed.
	renewEvery = 10 * time.Minute
	// replicasMost is how many numbers there are.
	replicasMost = 4096
	// searched is how many are looked at in one round trip.
	searched = 512
)

// replicas is what this process is among the others.
type replicas struct {
	token     string
	preferred atomic.Int64 // the number to be asked for first

	mu      sync.Mutex // of claiming
	current atomic.Pointer[replica]
	former  atomic.Pointer[replica] // where there is none now
	policy  atomic.Pointer[string]
}

// replica is a number that this process has, and the sequence of its batches.
// Numbers in sequence are microseconds of the server's clock, so that they are
// above those of whoever had the number before.
type replica struct {
	number int
	kept   bool // it was this replica's already when it was claimed
	base   int64
	at     time.Time // when the server's clock was at base
	last   atomic.Int64
}

func (rs *replicas) init(identity string) {
	number, token, ok := strings.Cut(identity, "-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n >= replicasMost || token == "" {
		var b [16]byte
		rand.Read(b[:])
		n, token = 0, hex.EncodeToString(b[:])
	}
	rs.token = token
	rs.preferred.Store(int64(n))
}

// next returns the next number of the sequence. It is even: the one after it is for what
// is to be given back of the batch; see giveBack.
func (r *replica) next() int64 {
	for {
		last := r.last.Load()
		n := max(last+2, r.base+time.Since(r.at).Microseconds()) &^ 1
		if r.last.CompareAndSwap(last, n) {
			return n
		}
	}
}

// Identity is what a process that takes this one's place gives as its
// Options.Identity, once the store has connected. The process may still be found
// to have applied batches whose replies were lost.
func (s *Store) Identity() string {
	return fmt.Sprintf("%d-%s", s.replicas.preferred.Load(), s.replicas.token)
}

// EvictionPolicy is the server's maxmemory-policy, or empty where the server has
// not been reached or does not tell. With any but noeviction it may forget
// counters, and thus budgets that are used up.
func (s *Store) EvictionPolicy() string {
	if p := s.replicas.policy.Load(); p != nil {
		return *p
	}
	return ""
}

// replica returns the number of this process, which is claimed if it has none.
func (s *Store) replica(ctx context.Context) (*replica, error) {
	if r := s.replicas.current.Load(); r != nil {
		return r, nil
	}
	s.replicas.mu.Lock()
	defer s.replicas.mu.Unlock()
	if r := s.replicas.current.Load(); r != nil {
		return r, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err) // another has just waited for as long
	}
	r, err := s.claimLowest(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	s.replicas.preferred.Store(int64(r.number))
	s.replicas.current.Store(r)
	if values, err := s.client.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil {
		policy := values["maxmemory-policy"]
		s.replicas.policy.Store(&policy)
	}
	return r, nil
}

func (s *Store) claimLowest(ctx context.Context) (*replica, error) {
	r, err := s.claimNumber(ctx, int(s.replicas.preferred.Load()), leasedFirst)
	for from := 0; err == nil && r == nil; from += searched {
		if from == replicasMost {
			return nil, fmt.Errorf("claiming a replica number: all %d are taken: %w", replicasMost, store.ErrUnavailable)
		}
		r, err = s.claimAmong(ctx, from, from+searched)
	}
	return r, err
}

// claimAmong claims the lowest number of a range that is free. It returns nil if none
// is.
func (s *Store) claimAmong(ctx context.Context, from, to int) (*replica, error) {
	pipe := s.client.Pipeline()
	owners := make([]*goredis.StringCmd, to-from)
	for i := range owners {
		owners[i] = pipe.Get(ctx, s.leaseKey(from+i)) // as the script does, so that it is allowed
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, owner := range owners {
		err := owner.Err()
		if err == nil {
			continue
		}
		if !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		// Others look for one, too, and may be faster.
		if r, err := s.claimNumber(ctx, from+i, leasedFirst); err != nil || r != nil {
			return r, err
		}
	}
	return nil, nil
}

// claimNumber leases a number. It returns nil if that is another's.
func (s *Store) claimNumber(ctx context.Context, n int, lease time.Duration) (*replica, error) {
	local := s.now().UnixMilli()
	reply, err := s.claim.run(ctx, s.client, s.leaseKey(n), s.replicas.token, lease.Milliseconds())
	if err != nil || reply == "" {
		return nil, err
	}
	micros, kept := strings.CutSuffix(reply, " kept")
	at := time.Now()
	base, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("claiming a replica number: reply %q: %w", reply, store.ErrUnavailable)
	}
	r := &replica{number: n, kept: kept, base: base, at: at}
	s.skew.Store(base/1000 - local)
	return r, nil
}

func (s *Store) leaseKey(n int) string { return s.prefix + "replica:" + strconv.Itoa(n) }

// renewLease keeps the number, or gives it up if it is another's by now.
func (s *Store) renewLease() {
	r := s.replicas.current.Load()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if again, err := s.claimNumber(ctx, r.number, leased); err == nil && again == nil {
		s.lose(r)
	}
}

// lose gives a number up that is another's by now.
func (s *Store) lose(r *replica) {
	s.replicas.former.Store(r)
	s.replicas.current.CompareAndSwap(r, nil)
}

// passed is told that the server knows of a later batch of a replica number. That
// is so where a clock was put back, or two have the same number.
func (s *Store) passed(number int, last int64) {
	r := s.replicas.current.Load()
	if r == nil || r.number != number {
		return
	}
	for {
		mine := r.last.Load()
		if mine >= last || r.last.CompareAndSwap(mine, last) {
			break
		}
	}
	s.work.checkLease()
}

// leave gives the number back. If that cannot be done, the lease ends by itself.
func (s *Store) leave(ctx context.Context) {
	r := s.replicas.current.Load()
	if r == nil {
		return
	}
	s.lose(r)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, _ = s.release.run(ctx, s.client, s.leaseKey(r.number), s.replicas.token)
}

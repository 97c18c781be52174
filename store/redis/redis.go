// Package redis is the store that keeps its counters in Redis, where several
// replicas count together.
//
// All that concerns one entity goes through a queue of its own, one batch at a
// time: what has to be settled first, then the calls that ask to be admitted. A
// batch is one script run at one instant of the server's clock. It has a number,
// which the server remembers together with what came of it, so that a batch whose
// reply was lost can be sent again until it is answered: nothing is charged twice
// and nothing is lost, and what a call took that gave up waiting is given back.
//
// The server's clock decides about windows, so the replicas' need not agree.
package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"hash/maphash"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// DefaultTimeout is how long a call waits for the server where nothing else is said.
const DefaultTimeout = 250 * time.Millisecond

// Options say how a store is made.
type Options struct {
	// Addresses are the server's, each host:port. A cluster and sentinels may have
	// several. The default is localhost:6379.
	Addresses []string
	// Cluster is set where the addresses are some of a cluster's.
	Cluster bool
	// Master is the name of the master where the addresses are of sentinels.
	Master string
	// Username and Password are the server's, or empty.
	Username, Password string
	// SentinelUsername and SentinelPassword are the sentinels', or empty.
	SentinelUsername, SentinelPassword string
	// DB is the number of the database, 0 in a cluster.
	DB int
	// TLS is how to encrypt connections. Nil means not at all.
	TLS *tls.Config
	// Prefix begins all keys. One prefix means one set of counters.
	Prefix string
	// Timeout is how long a call waits for the server. The default is
	// DefaultTimeout.
	Timeout time.Duration
	// Identity is that of a former process, as Store.Identity said it, which this
	// one takes the place of. It must not be in use by another process. Empty means
	// a new one.
	Identity string
	// OnError is told of what an operator should know and no call is told. It must
	// neither wait nor use the store. Nil means that nobody is.
	OnError func(error)
	// Now is the clock. The default is time.Now.
	Now func() time.Time

	// For tests: how connections are made, how finely deadlines are told apart,
	// and what the scripts are to be.
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	grid   func(lease int64) int64
	script func(source string) string
}

// Store keeps counters in Redis.
type Store struct {
	client                goredis.UniversalClient
	prefix                string
	timeout               time.Duration
	now                   func() time.Time
	grid                  func(lease int64) int64
	onError               func(error)
	apply, claim, release *script
	edit                  *script

	replicas replicas
	origin   origin
	// skew is how far the server's clock is ahead, in milliseconds.
	skew atomic.Int64

	fields  fieldNames
	seeds   [2]maphash.Seed
	shards  [shards]shard
	pending atomic.Int64 // what is queued or under way, but for calls
	doubts  atomic.Int64 // batches that may have been applied

	rests  rests
	work   worker
	closed atomic.Bool
}

// New returns a store that has not connected yet. The first call does.
func New(o Options) *Store {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.grid == nil {
		o.grid = quarter
	}
	if o.script == nil {
		o.script = func(source string) string { return source }
	}
	s := &Store{
		client: connect(&o), prefix: o.Prefix, timeout: o.Timeout, now: o.Now, grid: o.grid, onError: o.OnError,
		apply: newScript(o.script(countLua())),
		claim: newScript(o.script(claimLua)), release: newScript(releaseLua), edit: newScript(o.script(editLua)),
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	s.replicas.init(o.Identity)
	s.origin.init()
	s.work.init(s)
	return s
}

// quarter tells deadlines apart by a quarter of the lease, in milliseconds: a hold
// lives for one lease to one and a quarter, and an entity has few deadlines
// however many calls it has under way.
func quarter(lease int64) int64 { return max(1, lease/4) }

// Close settles what is pending, gives the replica's number back and ends the
// connections. Calls after it fail; what is settled after it stays pending. If ctx
// ends first, the error wraps store.ErrUnavailable and Export has what is left.
func (s *Store) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	err := s.drain(ctx)
	s.work.stop()
	if err == nil {
		s.leave(ctx)
	}
	_ = s.client.Close() // there is nothing to be done about it
	return err
}

// drain waits until nothing is pending.
func (s *Store) drain(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.pending.Load() > 0 {
		s.work.hurry()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("settling in Redis: %d pending: %w", s.pending.Load(), store.ErrUnavailable)
		}
	}
	return nil
}

// shards is how many parts the queues are in, each with a lock of its own.
const shards = 16

// shard is a part of the entities that something is pending of.
type shard struct {
	mu       sync.Mutex
	queues   map[store.Entity]*queue
	refusals map[store.Entity]*refusal
	edits    uint64 // by hand and after outages: what was sent before is not remembered

	_ [64]byte // keeps the locks of two shards out of one cache line
}

func (s *Store) shard(e store.Entity) *shard {
	h := maphash.String(s.seeds[0], e.Instance) + maphash.String(s.seeds[1], e.Consumer)
	return &s.shards[h%shards]
}

// Interface guards
var (
	_ store.Counters = (*Store)(nil)
	_ store.Refuser  = (*Store)(nil)
)

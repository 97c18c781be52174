package llmapp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/outage"
	"github.com/llmlimits/caddy-llm-limits/store/redis"
)

const (
	// flushMost is for how long a store that no config uses any more tries to hand over
	// what is pending; then that is left to the next process that uses it.
	flushMost = 30 * time.Second
	// exitMost is the same for a process that ends.
	exitMost = 5 * time.Second
	// lookEvery is how often a store looks whether its calls have ended, or whether the
	// server is there.
	lookEvery = 100 * time.Millisecond
)

// shares are counters in Redis, opened by a config.
type shares struct {
	*outage.Counters
	counts  string // which they are
	watched sync.Once
	kept    atomic.Bool // API keys are in it, too
	evicts  sync.Once   // it was told that they may be dropped
	// hurry ends the time that closing may take; it is called when the process ends.
	hurrying context.Context
	hurry    context.CancelFunc
	gone     chan struct{} // closed when they are
	left     func()        // closes gone, once
}

// leaving are counters that no config uses any more, but calls at work.
var leaving struct {
	sync.Mutex
	all map[*shares]struct{}
}

// latest are the counters that were started last of each counts there are. Others of
// the same go on with what they know of the use of limits.
var latest struct {
	sync.Mutex
	of map[string]*shares
}

// before returns the counters that were started last of the counts, nil for none.
func before(counts string) *outage.Counters {
	latest.Lock()
	defer latest.Unlock()
	if s := latest.of[counts]; s != nil {
		return s.Counters
	}
	return nil
}

// note makes the counters the latest.
func (s *shares) note() {
	latest.Lock()
	defer latest.Unlock()
	if latest.of == nil {
		latest.of = make(map[string]*shares)
	}
	latest.of[s.counts] = s
}

// forget ends that.
func (s *shares) forget() {
	latest.Lock()
	defer latest.Unlock()
	if latest.of[s.counts] == s {
		delete(latest.of, s.counts)
	}
}

// clientLog has what the Redis client says of each connection in Caddy's debug log;
// by itself it writes to the standard error.
type clientLog struct{}

// Printf implements the client's logging.
func (clientLog) Printf(_ context.Context, format string, v ...any) {
	if c := logger().Named("redis").Check(zap.DebugLevel, "client"); c != nil {
		c.Write(zap.String("message", fmt.Sprintf(format, v...)))
	}
}

func init() {
	goredis.SetLogger(clientLog{})
	caddy.OnExit(func(ctx context.Context) { closeLeaving(ctx, exitMost) })
}

// closeLeaving closes all counters that are leaving, at once, or has those that are
// closing hurry.
func closeLeaving(ctx context.Context, most time.Duration) {
	leaving.Lock()
	all := slices.Collect(maps.Keys(leaving.all))
	leaving.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var ends sync.WaitGroup
	for _, s := range all {
		ends.Go(func() {
			defer context.AfterFunc(ctx, s.hurry)()
			s.close(ctx, most)
		})
	}
	ends.Wait()
}

// Open implements Store. It connects to nothing.
func (r *Redis) Open() (store.Counters, error) {
	at := r.at
	s := newShares(at.counts())
	s.Counters = outage.New(func(identity string) outage.Remote {
		return redis.New(redis.Options{
			Addresses: at.Addresses, Cluster: at.Cluster, Master: at.Master,
			Username: at.Username, Password: at.Password,
			SentinelUsername: at.SentinelUsername, SentinelPassword: at.SentinelPassword,
			DB: at.DB, TLS: at.tls, Prefix: at.Prefix, Timeout: at.Timeout, Identity: identity,
			OnError: func(err error) { logger().Error("charging redis", zap.Error(err)) },
		})
	}, outage.Options{
		Policy: r.policy, Replicas: r.Replicas, Timeout: at.Timeout, Dir: at.Dir, Before: before(s.counts),
		OnOpen: s.opened, OnClose: s.closed, OnError: troubled,
	})
	return s, nil
}

func newShares(counts string) *shares {
	s := &shares{counts: counts, gone: make(chan struct{})}
	s.hurrying, s.hurry = context.WithCancel(context.Background())
	s.left = sync.OnceFunc(func() { close(s.gone) })
	return s
}

// Apply implements Store.
func (r *Redis) Apply(c store.Counters) {
	c.(*shares).Set(r.policy, r.Replicas)
}

// StartStore takes up what a former process has left, and connects in the background:
// a gateway starts without Redis, too.
func (*Redis) StartStore(c store.Counters, _ *zap.Logger) error {
	s := c.(*shares)
	s.Start()
	s.note()
	s.watched.Do(func() { go s.watch() })
	return nil
}

// logger outlives the config.
func logger() *zap.Logger { return caddy.Log().Named(Name) }

// opened says what calls do without Redis.
func (s *shares) opened(err error) {
	logger().Error("redis cannot be reached: "+s.does(), zap.Error(err))
	Emit("llm.store_outage", map[string]any{"open": true, "on_outage": s.Policy().String()})
}

func (s *shares) does() string {
	switch s.Policy() {
	case outage.Allow:
		return "calls are admitted without a check"
	case outage.Deny:
		return "calls are answered with 503"
	default:
		return "calls are counted here"
	}
}

func (s *shares) closed(open time.Duration) {
	logger().Info("redis is back, and has been charged with what was used meanwhile", zap.Duration("outage", open))
	Emit("llm.store_outage", map[string]any{"open": false, "seconds": open.Seconds()})
}

func troubled(err error) {
	if errors.Is(err, outage.ErrDamaged) {
		logger().Error("the file of charges that redis has not taken was damaged, as by a crash", zap.Error(err))
		return
	}
	logger().Error("keeping charges that redis has not taken: a restart may lose them", zap.Error(err))
}

// watch connects, and warns once of a server that may forget what was used.
func (s *shares) watch() {
	r := s.Remote().(*redis.Store)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), s.Timeout())
		err := r.Ping(ctx)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-s.gone:
			return
		case <-tick.C:
			tick.Reset(time.Second)
		}
	}
	if p := r.EvictionPolicy(); p != "" && p != "noeviction" {
		logger().Warn("redis may drop counters when it is short of memory, and limits would start again: set its maxmemory-policy to noeviction",
			zap.String("maxmemory-policy", p))
	}
	s.warnOfKeys()
}

// warnOfKeys tells once that the server may drop API keys. They do not expire, so that
// only policies for all keys do.
func (s *shares) warnOfKeys() {
	p := s.Remote().(*redis.Store).EvictionPolicy()
	if !s.kept.Load() || !strings.HasPrefix(p, "allkeys-") {
		return
	}
	s.evicts.Do(func() {
		logger().Error("redis may drop API keys when it is short of memory, and calls with keys_store would get 503: set its maxmemory-policy to noeviction",
			zap.String("maxmemory-policy", p))
	})
}

// Keys are the API keys in the same Redis.
func (s *shares) Keys() store.Keys {
	s.kept.Store(true)
	s.warnOfKeys()
	return s.Remote().(*redis.Store).Keys()
}

// Release is for when no config uses the counters any more. Calls at work still end in
// them; then what is pending is handed over.
func (s *shares) Release() error {
	if caddy.Exiting() {
		return s.end(context.Background(), exitMost)
	}
	leaving.Lock()
	defer leaving.Unlock()
	if leaving.all == nil {
		leaving.all = make(map[*shares]struct{})
	}
	leaving.all[s] = struct{}{}
	go s.linger()
	return nil
}

// linger closes the counters after the last call, and not before it is safe: what they
// could not hand over in an outage may have no other place while the counters before
// have the directory.
func (s *shares) linger() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for s.Outstanding() > 0 || !s.Safe() {
		select {
		case <-tick.C:
		case <-s.gone:
			return
		}
	}
	s.close(s.hurrying, flushMost)
	leaving.Lock()
	defer leaving.Unlock()
	delete(leaving.all, s)
}

func (s *shares) close(ctx context.Context, most time.Duration) {
	if err := s.end(ctx, most); err != nil {
		logger().Error("closing redis store", zap.Error(err))
	}
}

// end closes the counters, once.
func (s *shares) end(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := s.Close(ctx)
	s.watched.Do(func() {}) // it is too late to watch
	s.forget()
	s.left()
	s.hurry()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("handing over charges: %w", err)
	}
	return nil
}

// Interface guards
var (
	_ keeper   = (*shares)(nil)
	_ releaser = (*shares)(nil)
)

// Package llmapp is the app that a config's handlers share: the store, the meter,
// the instances by name, and what the admin endpoint tells of them.
package llmapp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/store"
)

func init() {
	caddy.RegisterModule(new(App))
}

// Name is the app's module name.
const Name = "llm"

// App holds what the whole config shares. Without it in the config it has its
// defaults.
type App struct {
	// StoreRaw is where limits are counted. The default is `memory`.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=llm.stores inline_key=type"`

	// Meter says how calls are metered.
	Meters Meter `json:"meter,omitzero"`

	store    Store
	shared   *shared // stays set after Cleanup: calls at work still settle with it
	acquired bool
	logger   *zap.Logger
	ctx      caddy.Context

	routes func() error // checkRoutes, once
	asks   atomic.Bool  // some handler asks for usage

	mu        sync.Mutex
	instances []Instance
	starters  []func()
	usesKeys  bool
	keys      map[string]string // whose the keys of the config are, by id
}

// Meter says how calls are metered.
type Meter struct {
	// MaxBody bounds a request body that must be read, in bytes; a larger one is
	// answered with 413. Default: 67108864 (64 MiB).
	MaxBody int64 `json:"max_body,omitempty"`
	// MaxBuffered bounds the bodies held at one time, in bytes; beyond it calls are
	// answered with 503. Default: 536870912 (512 MiB).
	MaxBuffered int64 `json:"max_buffered,omitempty"`
	// Drain is how long an upstream is read on after its client has gone, so that its
	// answer says what was used; then it is cancelled. -1 is not at all. Default: 2s.
	Drain caddy.Duration `json:"drain,omitempty"`
	// AskUsage says whether streams that would carry no usage are asked for it: `on`
	// or `off`. Default: `on`.
	AskUsage string `json:"ask_usage,omitempty"`
	// TrustDuration are header fields by which somebody in front of the gateway says how
	// many seconds a recording or video plays, such as `X-Audio-Duration` and
	// `X-Video-Duration`; where more was measured, that counts. What clients send in them
	// must not come through. Default: none, so that lengths are measured alone.
	TrustDuration []string `json:"trust_duration,omitempty"`
	// Lease is the life of a hold that is not renewed. Default: 90s.
	Lease caddy.Duration `json:"lease,omitempty"`
}

// maxSize is the largest size that an option may have, in bytes.
const maxSize = 1 << 50

// defaultLease is the life of a hold that is not renewed.
const defaultLease = 90 * time.Second

// Store is a module in the namespace llm.stores.
type Store interface {
	// Key is the same for configs whose counters are the same.
	Key() string
	// Open makes the counters; it is called when no config has them open.
	Open() (store.Counters, error)
	// Apply gives the options that may change to counters that are open. It is
	// called once the config has started.
	Apply(store.Counters)
}

// starter is a Store that has I/O to do before calls come.
type starter interface {
	// StartStore readies the counters for the config that is to run, which does not if
	// it returns an error. It is called again if that config could be started but not
	// replace another, whose options are then in force again.
	StartStore(store.Counters, *zap.Logger) error
}

// keysChecker is a Store that may be unable to keep API keys.
type keysChecker interface {
	// CheckKeys tells why the counters, which are started, are not to be used for keys.
	CheckKeys(store.Counters) error
}

// syncer is counters that write behind.
type syncer interface {
	// Sync returns when all is written that has been counted.
	Sync() error
}

// releaser is counters that have connections to end.
type releaser interface {
	// Release is called when no config uses the counters any more. Calls at work still
	// do.
	Release() error
}

// keeper is counters that keep API keys, too.
type keeper interface {
	Keys() store.Keys
}

// shared is what outlives a config: calls go on while configs are replaced.
type shared struct {
	counters store.Counters
	leases   *store.Leases
	meter    *meter.Meter
}

// Destruct implements caddy.Destructor. Calls that are still at work keep what they
// need until they have settled. If the process is to end, this is the last chance to
// write what has been counted.
func (s *shared) Destruct() error {
	if c, ok := s.counters.(syncer); ok {
		return c.Sync()
	}
	if c, ok := s.counters.(releaser); ok {
		return c.Release()
	}
	return nil
}

// pool keeps counters, by store, from one config to the next.
var pool = caddy.NewUsagePool()

// started are the apps that have started and not stopped, the newest last. There are
// two of them while one config takes over from another; should the newer one fail,
// the older goes on.
var started struct {
	mu   sync.Mutex
	apps []*App
}

// active is the app of the config that runs, nil if none does.
func active() *App {
	started.mu.Lock()
	defer started.mu.Unlock()
	if n := len(started.apps); n > 0 {
		return started.apps[n-1]
	}
	return nil
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Name, New: func() caddy.Module { return new(App) }}
}

// Provision sets up the app. It changes nothing that a running config uses.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger = ctx, ctx.Logger()
	a.routes = sync.OnceValue(a.checkRoutes)
	if err := a.Meters.check(); err != nil {
		return err
	}
	if err := metrics.Process.Register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if a.StoreRaw == nil {
		a.StoreRaw = json.RawMessage(`{"type":"memory"}`)
	}
	mod, err := ctx.LoadModule(a, "StoreRaw")
	if err != nil {
		return fmt.Errorf("loading store: %w", err)
	}
	s := mod.(Store)
	v, _, err := pool.LoadOrNew(s.Key(), func() (caddy.Destructor, error) {
		counters, err := s.Open()
		if err != nil {
			return nil, err
		}
		// Servers may start before this app does: nobody else's options are changed here.
		m := meter.New()
		m.SetOptions(a.Meters.options())
		return &shared{
			counters: counters,
			leases: store.NewLeases(counters, a.Meters.lease(), func(err error) {
				// not the app's logger: the counters outlive the config it belongs to
				caddy.Log().Named(Name).Error("renewing holds", zap.Error(err))
				metrics.Process.StoreFailed(metrics.Renew, err)
			}),
			meter: m,
		}, nil
	})
	if err != nil {
		return fmt.Errorf("opening store: %w", err)
	}
	// from here on Cleanup has something to give back
	a.store, a.shared, a.acquired = s, v.(*shared), true
	return nil
}

func (m *Meter) check() error {
	switch {
	case m.MaxBody < 0 || m.MaxBody > maxSize:
		return fmt.Errorf("meter: max_body %d is not a size from 1 to %d bytes", m.MaxBody, int64(maxSize))
	case m.MaxBuffered < 0 || m.MaxBuffered > maxSize:
		return fmt.Errorf("meter: max_buffered %d is not a size from 1 to %d bytes", m.MaxBuffered, int64(maxSize))
	case m.Drain < -1:
		return fmt.Errorf("meter: drain %s is less than nothing; -1 turns it off", time.Duration(m.Drain))
	case m.AskUsage != "" && m.AskUsage != "on" && m.AskUsage != "off":
		return fmt.Errorf("meter: ask_usage %q is none of on, off", m.AskUsage)
	case m.Lease < 0 || m.Lease > 0 && time.Duration(m.Lease) < time.Second:
		return fmt.Errorf("meter: lease %s is shorter than a second", time.Duration(m.Lease))
	}
	for _, name := range m.TrustDuration {
		if err := meter.CheckDurationHeader(name); err != nil {
			return fmt.Errorf("meter: trust_duration: %w", err)
		}
	}
	return nil
}

func (m *Meter) options() meter.Options {
	return meter.Options{
		MaxBody: m.MaxBody, MaxBuffered: m.MaxBuffered,
		Drain: time.Duration(m.Drain), LeaveUsage: m.AskUsage == "off", TrustDuration: m.TrustDuration,
	}
}

func (m *Meter) lease() time.Duration { return cmp.Or(time.Duration(m.Lease), defaultLease) }

// Start puts the options in force, now that the config is to run, and refuses a
// config whose routes could let calls pass uncounted.
func (a *App) Start() error {
	if err := a.Routes(); err != nil {
		return err
	}
	if err := a.startStore(); err != nil {
		return fmt.Errorf("starting store: %w", err)
	}
	if err := a.checkKeys(); err != nil {
		return err
	}
	started.mu.Lock()
	defer started.mu.Unlock()
	started.apps = append(started.apps, a)
	a.apply()
	metrics.Process.SetTable(nil)
	for _, f := range a.starters {
		f()
	}
	return nil
}

// Routes walks the routes of the config, once, and says what is wrong with them. Servers
// may start before this app does: what the walk tells limiters has been told when it
// returns. The config must have been provisioned.
func (a *App) Routes() error { return a.routes() }

// OnStart has f called when the config is to run. It must be called while the config is
// provisioned.
func (a *App) OnStart(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starters = append(a.starters, f)
}

func (a *App) startStore() error {
	if s, ok := a.store.(starter); ok {
		return s.StartStore(a.shared.counters, a.logger)
	}
	return nil
}

// checkKeys refuses a store whose keys may not all be known.
func (a *App) checkKeys() error {
	if s, ok := a.store.(keysChecker); ok && a.usesKeys {
		if err := s.CheckKeys(a.shared.counters); err != nil {
			return fmt.Errorf("keys_store: %w", err)
		}
	}
	return nil
}

// apply puts the options in force.
func (a *App) apply() {
	a.shared.meter.SetOptions(a.Meters.options())
	a.shared.leases.SetLease(a.Meters.lease())
	a.store.Apply(a.shared.counters)
	metrics.Process.SetGauges(a.shared.gauges())
}

// Stop implements caddy.App. Where a config that had been started could not replace
// the one before, that one's options are in force again.
func (a *App) Stop() error {
	started.mu.Lock()
	defer started.mu.Unlock()
	i := slices.Index(started.apps, a)
	if i < 0 {
		return nil
	}
	newest := i == len(started.apps)-1
	started.apps = slices.Delete(started.apps, i, i+1)
	if newest && i > 0 {
		before := started.apps[i-1]
		before.apply()
		if err := before.startStore(); err != nil {
			a.logger.Error("returning to the store's options before", zap.Error(err))
		}
	}
	if len(started.apps) == 0 {
		metrics.Process.SetGauges(metrics.Gauges{})
	}
	return nil
}

// Cleanup gives back what Provision took.
func (a *App) Cleanup() error {
	if !a.acquired {
		return nil
	}
	a.acquired = false
	if caddy.Exiting() && !a.shared.meter.Finish() {
		a.logger.Error("ending calls: some are not charged")
	}
	_, err := pool.Delete(a.store.Key())
	return err
}

// Counters is the store that limits are counted in.
func (a *App) Counters() store.Counters { return a.shared.counters }

// Keys is the store that API keys are issued in, beside the counters; nil if there is
// none. It must not be called before the config is to run.
func (a *App) Keys() store.Keys {
	if c, ok := a.shared.counters.(keeper); ok {
		return c.Keys()
	}
	return nil
}

// UseKeys says that the config has its API keys in the store: it is refused if there may
// be some that cannot be read. It must be called while the config is provisioned.
func (a *App) UseKeys() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usesKeys = true
}

// KeyOf notes whose a key of the config is. Where another handler has a key of that id, ok
// tells whether it is the same application's.
func (a *App) KeyOf(id, application string) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, twice := a.keys[id]; twice {
		return other == application
	}
	if a.keys == nil {
		a.keys = make(map[string]string)
	}
	a.keys[id] = application
	return true
}

// KeepsKeys tells whether the store keeps API keys.
func (a *App) KeepsKeys() bool {
	_, ok := a.shared.counters.(keeper)
	return ok
}

// StoreKey is the same for configs whose counters and keys are the same.
func (a *App) StoreKey() string { return a.store.Key() }

// StoreKind is the name of the store's module: `memory`, `redis`.
func (a *App) StoreKind() string {
	kind, _, _ := strings.Cut(a.store.Key(), " ") // what follows tells stores of a kind apart
	return kind
}

// CountsKey is the same for configs whose stores are of the same counts and keys, though
// they may reach them in another way.
func (a *App) CountsKey() string {
	if s, ok := a.store.(interface{ Counts() string }); ok {
		return s.Counts()
	}
	return a.store.Key()
}

// Leases renews the holds of calls at work.
func (a *App) Leases() *store.Leases { return a.shared.leases }

// Meter watches calls.
func (a *App) Meter() *meter.Meter { return a.shared.meter }

// errNoApp is what the admin endpoint answers when no config uses the app.
var errNoApp = errors.New("the running config uses no llm module")

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

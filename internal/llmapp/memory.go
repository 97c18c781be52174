package llmapp

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

func init() {
	caddy.RegisterModule(new(Memory))
}

// Memory counts in this process. The counts survive config reloads and, with a
// directory to write them to, restarts; kill -9 or a power cut loses at most the last
// second.
type Memory struct {
	// Persist is the directory that counts are written to, which belongs to this
	// process alone, or `off`. Where it cannot be written to, counts are in memory only,
	// and a warning says so; with `keys_store`, or where the config before has another
	// directory, the config is refused. Default: `llm` in Caddy's data directory.
	Persist string `json:"persist,omitempty"`

	// MaxEntities bounds how many consumers, over all instances, are counted at one
	// time. When it is reached, consumers that clients can make up are refused;
	// applications never are. Default: 100000.
	MaxEntities int `json:"max_entities,omitempty"`

	dir string // empty for `off`
}

// persistOff is the value of Persist that turns it off.
const persistOff = "off"

// CaddyModule returns the Caddy module information.
func (*Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "llm.stores.memory", New: func() caddy.Module { return new(Memory) }}
}

// Provision finds the directory. It does not touch it: a gateway that is running may
// have it.
func (m *Memory) Provision(caddy.Context) error {
	dir, err := caddy.NewReplacer().ReplaceOrErr(m.Persist, true, true)
	if err != nil {
		return fmt.Errorf("persist %q: %w", m.Persist, err)
	}
	switch dir {
	case persistOff:
		return nil
	case "":
		dir = filepath.Join(caddy.AppDataDir(), Name)
	}
	if m.dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("persist %q: %w", m.Persist, err)
	}
	return nil
}

// Validate checks the options.
func (m *Memory) Validate() error {
	if m.MaxEntities < 0 {
		return fmt.Errorf("max_entities %d must be greater than zero", m.MaxEntities)
	}
	return nil
}

// Key implements Store: a process has one.
func (*Memory) Key() string { return "memory" }

// process holds the counts of this process. They stay when a config takes the last
// limiter out, so that one that puts it back finds what had been used.
var process = sync.OnceValue(func() *memory.Store {
	return memory.New(memory.Options{AwaitPersist: true, Report: reportWrites})
})

// reportWrites tells the operator that the file of counts cannot be written any more,
// or can again. It does not use an app's logger: the counts outlive the config.
func reportWrites(err error) {
	log := caddy.Log().Named(Name)
	if err != nil {
		log.Error("the file of counts cannot be written: what it lacks is kept in memory, and written when it can be", zap.Error(err))
		return
	}
	log.Info("the file of counts is written again")
}

// Open implements Store.
func (*Memory) Open() (store.Counters, error) { return process(), nil }

// Apply implements Store.
func (m *Memory) Apply(c store.Counters) {
	c.(*memory.Store).SetMaxEntities(m.MaxEntities)
}

// StartStore reads what an earlier process has counted, and has it written from now
// on. Two processes on one directory would each undo what the other counts, so the
// second does not start. Nor does an older version than the one that wrote the
// directory, or a config whose directory cannot take all that is in the one before: it
// would begin at nothing, the one at once, the other when it is started the next time.
func (m *Memory) StartStore(c store.Counters, log *zap.Logger) error {
	s := c.(*memory.Store)
	before := s.Dir()
	found, err := s.Persist(m.dir)
	logFound(log, m.dir, &found)
	switch {
	case err == nil:
	case errors.Is(err, memory.ErrLocked), errors.Is(err, memory.ErrNewer):
		return fmt.Errorf("persist: %w", err)
	case m.dir == "":
		log.Error("writing counts, now that persist is off", zap.Error(err))
	case before != "":
		return fmt.Errorf("persist: moving counts and keys from %q, where they stay, to %q: %w", before, m.dir, err)
	default:
		log.Warn("counts are in memory only, a restart forgets them: the persist directory cannot be used", zap.String("dir", m.dir), zap.Error(err))
	}
	return nil
}

// logFound tells what was found in a directory.
func logFound(log *zap.Logger, path string, found *memory.Restored) {
	dir := zap.String("dir", path)
	if found.Dropped > 0 {
		log.Warn("the file of counts was damaged, as by a crash: its end was cut off", dir,
			zap.Int64("dropped_bytes", found.Dropped), zap.String("set_aside", found.SetAside))
	}
	if found.Unread > 0 {
		log.Warn("counts could not be understood, as of a time zone that this machine does not know", dir, zap.Int("records", found.Unread), zap.NamedError("first", found.Reason))
	}
	if found.KeysDropped > 0 {
		log.Error("the file of API keys was damaged, as by a crash: its end was cut off, and what was issued or revoked last may be lost", dir,
			zap.Int64("dropped_bytes", found.KeysDropped), zap.String("set_aside", found.KeysSetAside))
	}
	if found.KeysUnread > 0 {
		log.Error("records of API keys could not be understood: what was issued, disabled or revoked by them is lost", dir, zap.Int("records", found.KeysUnread))
	}
	if found.Entities > 0 {
		log.Info("counts restored", dir, zap.Int("entities", found.Entities))
	}
}

// CheckKeys refuses a directory that cannot be used: keys that are in it would be unknown,
// and clients that have them told to give up.
func (m *Memory) CheckKeys(c store.Counters) error {
	if m.dir != "" && c.(*memory.Store).Dir() == "" {
		return fmt.Errorf("the persist directory %q cannot be used, and API keys in it would be unknown: make it writable, name another, or keep keys in memory only by `persist off`", m.dir)
	}
	return nil
}

// Interface guards
var (
	_ keysChecker       = (*Memory)(nil)
	_ starter           = (*Memory)(nil)
	_ keeper            = (*memory.Store)(nil)
	_ syncer            = (*memory.Store)(nil)
	_ caddy.Provisioner = (*Memory)(nil)
	_ Store             = (*Memory)(nil)
	_ caddy.Validator   = (*Memory)(nil)
)

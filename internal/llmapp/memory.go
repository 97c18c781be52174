package llmapp

import (
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

func init() {
	caddy.RegisterModule(new(Memory))
}

// Memory counts in this process. The counts survive config reloads; a restart
// forgets them.
type Memory struct {
	// MaxEntities bounds how many consumers, over all instances, are counted at one
	// time. When it is reached, consumers that clients can make up are refused;
	// applications never are. Default: 100000.
	MaxEntities int `json:"max_entities,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "llm.stores.memory", New: func() caddy.Module { return new(Memory) }}
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
	return memory.New(memory.Options{})
})

// Open implements Store.
func (*Memory) Open() (store.Counters, error) { return process(), nil }

// Apply implements Store.
func (m *Memory) Apply(c store.Counters) {
	c.(*memory.Store).SetMaxEntities(m.MaxEntities)
}

// Interface guards
var (
	_ Store           = (*Memory)(nil)
	_ caddy.Validator = (*Memory)(nil)
)

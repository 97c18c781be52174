package llmapp

import (
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
)

// eventsMost bounds the events that wait. Handlers may be slow, and refusals come in
// floods; what is past it is lost.
const eventsMost = 1000

// event waits to be emitted.
type event struct {
	name string
	data map[string]any
}

// outbox hands events to the running config's subscribers, in the order in which they
// came. Its goroutine runs only while there are any.
type outbox struct {
	mu      sync.Mutex
	waiting []event
	running bool
	lost    int
}

var events outbox

// Emit tells the subscribers of the running config of an event, such as `llm.refused`.
// It does not wait for them. The data must not be changed any more.
func Emit(name string, data map[string]any) { events.put(name, data) }

func (o *outbox) put(name string, data map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) >= eventsMost {
		o.lost++
		return
	}
	o.waiting = append(o.waiting, event{name, data})
	if !o.running {
		o.running = true
		go o.run()
	}
}

func (o *outbox) run() {
	for {
		batch, lost, ok := o.next()
		if !ok {
			return
		}
		if lost > 0 {
			caddy.Log().Named(Name).Warn("events are lost: handlers are slower than they come", zap.Int("events", lost))
		}
		for _, e := range batch {
			emit(e)
		}
	}
}

// next is what waits.
func (o *outbox) next() (batch []event, lost int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.running = false
		return nil, 0, false
	}
	batch, lost = o.waiting, o.lost
	o.waiting, o.lost = nil, 0
	return batch, lost, true
}

// emit emits an event in the name of the running config. That of the call may be gone;
// and until all apps of a config have started, its subscriptions are still being made.
func emit(e event) {
	// no server guards this goroutine, and handlers are others' code
	defer func() {
		if v := recover(); v != nil {
			caddy.Log().Named(Name).Error("emitting an event", zap.String("event", e.name), zap.Any("panic", v), zap.Stack("stack"))
		}
	}()
	running := caddy.ActiveContext()
	mod, err := running.AppIfConfigured(Name)
	if err != nil {
		return
	}
	sink, err := running.AppIfConfigured("events")
	if err != nil {
		return
	}
	app, ok := mod.(*App)
	if to, isApp := sink.(*caddyevents.App); ok && isApp && to.ShouldEmit(e.name) {
		to.Emit(app.ctx, e.name, e.data)
	}
}

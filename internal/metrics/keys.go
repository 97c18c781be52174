package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// KeysState is what a process knows of the API keys in a store.
type KeysState struct {
	// Store is the kind of the store.
	Store string
	// Known is how many keys are known.
	Known int
	// Age is how long ago they were last those of the store.
	Age time.Duration
}

// keys tells of API keys.
type keys struct {
	known, age *prometheus.Desc
	from       atomic.Pointer[func() (KeysState, bool)]
	reread     prometheus.Counter
}

func newKeys() keys { return keys{known: keysKnown.desc(), age: keysAge.desc()} }

// SetKeys sets what tells of API keys; it returns false while none are in a store. It is
// asked at each scrape, and must not refer to a config.
func (s *Set) SetKeys(f func() (KeysState, bool)) { s.keys.from.Store(&f) }

// KeysReread counts a time that all keys were read anew.
func (s *Set) KeysReread() { s.keys.reread.Inc() }

func (k *keys) describe(ch chan<- *prometheus.Desc) {
	ch <- k.known
	ch <- k.age
}

func (k *keys) collect(ch chan<- prometheus.Metric) {
	from := k.from.Load()
	if from == nil {
		return
	}
	state, ok := (*from)()
	if !ok {
		return
	}
	ch <- prometheus.MustNewConstMetric(k.known, prometheus.GaugeValue, float64(state.Known), state.Store)
	ch <- prometheus.MustNewConstMetric(k.age, prometheus.GaugeValue, state.Age.Seconds(), state.Store)
}

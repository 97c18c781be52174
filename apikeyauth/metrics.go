package apikeyauth

import (
	"errors"

	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
)

func init() { metrics.Process.SetKeys(keysState) }

// keysState is what is known of the keys of the config that runs. A process has one
// store, so that of two configs it is the newer one's.
func keysState() (metrics.KeysState, bool) {
	serving.mu.Lock()
	defer serving.mu.Unlock()
	n := len(serving.handlers)
	if n == 0 {
		return metrics.KeysState{}, false
	}
	r := serving.handlers[n-1].ring
	return metrics.KeysState{Store: r.kind, Known: r.Len(), Age: r.Behind()}, true
}

// reasons are why keys are refused, in the words of metrics. The order is that of the
// documentation.
var reasons = []struct {
	err  error
	word string
}{
	{errNoKey, "no_key"},
	{errTwoKeys, "two_keys"},
	{errMalformed, "malformed"},
	{errUnknown, "unknown"},
	{errDisabled, "disabled"},
	{errExpired, "expired"},
	{errRotated, "rotated"},
	{errTwice, "duplicate_id"},
	{errAway, "store_unavailable"},
}

// reason is the word for an error.
func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.word
		}
	}
	return "other"
}

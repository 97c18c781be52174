package apikeyauth

import "errors"

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

package apikeyauth

import (
	"errors"
	"fmt"
	"testing"
)

func TestEveryReasonHasAWord(t *testing.T) {
	seen := make(map[string]bool)
	for _, err := range []error{errNoKey, errTwoKeys, errMalformed, errUnknown, errDisabled, errExpired, errRotated, errTwice, errAway} {
		word := reason(fmt.Errorf("wrapped: %w", err))
		if word == "other" || seen[word] {
			t.Errorf("%v is %q", err, word)
		}
		seen[word] = true
	}
	if word := reason(errors.New("something else")); word != "other" {
		t.Errorf("something else is %q", word)
	}
}

package apikeyauth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// A key has two secrets at most. Who rotates one that has two says which of them is to
// end: the answer to the rotation before may be lost, so that the newer one is nobody's.
const (
	endPrevious = "previous"
	endCurrent  = "current"
)

var errEnd = errors.New(`end must be "previous" or "current"`)

// rotate gives a key another secret. The one before works for a time of grace yet.
func (*Admin) rotate(w http.ResponseWriter, r *http.Request, id string) error {
	in, err := running()
	if err != nil {
		return err
	}
	var req rotateRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	grace, err := req.grace()
	if err == nil {
		err = checkEnd(req.End)
	}
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	k, err := in.keys.Get(r.Context(), id)
	if err != nil {
		return storeError(err)
	}
	now := time.Now()
	if !k.Expires.IsZero() && !now.Before(k.Expires) {
		return apiError(http.StatusConflict, fmt.Errorf("the key %q has expired, and would not work with another secret either: issue a new one", k.ID))
	}
	if grace > 0 && req.End == "" && now.Before(k.Until) {
		return apiError(http.StatusConflict, twoSecrets(k.ID, k.Until))
	}
	secret := rotated(&k, now, grace, req.End)
	switch err := in.put(r.Context(), k); {
	case errors.Is(err, store.ErrKeyChanged):
		return apiError(http.StatusConflict, fmt.Errorf("the key %q has been rotated or revoked by somebody else at this moment: nothing was changed", k.ID))
	case err != nil:
		auditUnconfirmed(r, "API key rotated", k.ID, err)
		return storeError(err)
	}
	in.settle(r.Context())
	audit(r, "API key rotated", zap.String("key_id", k.ID), zap.Duration("grace", grace))
	return answer(w, http.StatusOK, issued{Key: secret})
}

func checkEnd(end string) error {
	if end != "" && end != endPrevious && end != endCurrent {
		return errEnd
	}
	return nil
}

// twoSecrets is why a key is not rotated within a grace.
func twoSecrets(id string, until time.Time) error {
	return fmt.Errorf(`the key %q was rotated already, and has two secrets until %s. To rotate it again ends one of them at once: say which, with end "previous", the older one, or "current", the one that the last rotation gave, if nobody has it`,
		id, until.UTC().Format(time.RFC3339))
}

// rotated changes the secret of a key and returns the new one. A secret from before works
// for the grace yet: the current one, or the previous one if the current is to end.
func rotated(k *store.Key, now time.Time, grace time.Duration, end string) string {
	secret := apikey.New()
	before := k.Hash
	if end == endCurrent && now.Before(k.Until) {
		before = k.Previous
	}
	k.Previous, k.Until = store.KeyHash{}, time.Time{}
	if grace > 0 {
		k.Previous, k.Until = before, now.Add(grace).Truncate(time.Millisecond)
	}
	k.Hash = apikey.Hash(secret)
	return secret
}

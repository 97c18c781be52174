package apikeyauth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// enableRequest is the body of PATCH /llm/keys/{id}.
type enableRequest struct {
	// Enabled turns the key on or off. Required.
	Enabled *bool `json:"enabled"`
}

var errEnabled = errors.New(`body: "enabled" must be there, true or false: it is what can be changed`)

// enableTries is how often a key is read again that somebody else changes meanwhile.
const enableTries = 5

// enable turns a key on or off, with all its secrets. Nothing else of it changes,
// whoever changes that at the same moment.
func (*Admin) enable(w http.ResponseWriter, r *http.Request, id string) error {
	in, err := running()
	if err != nil {
		return err
	}
	var req enableRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	if req.Enabled == nil {
		return apiError(http.StatusBadRequest, errEnabled)
	}
	what := "API key disabled"
	if *req.Enabled {
		what = "API key enabled"
	}
	k, err := in.enable(r, id, *req.Enabled)
	switch {
	case errors.Is(err, store.ErrNoKey) && in.ring.Emptied():
		return apiError(http.StatusServiceUnavailable, errEmptied)
	case errors.Is(err, store.ErrKeyChanged):
		return apiError(http.StatusConflict, fmt.Errorf("the key %q is changed by others all the time: nothing was changed", k.ID))
	case err != nil:
		auditUnconfirmed(r, what, id, err)
		return storeError(err)
	}
	in.settle(r.Context())
	audit(r, what, zap.String("key_id", k.ID))
	return answer(w, http.StatusOK, rowOf(&k, time.Now()))
}

// enable returns the key as it is afterwards.
func (in *instance) enable(r *http.Request, id string, on bool) (k store.Key, err error) {
	for range enableTries {
		if k, err = in.keys.Get(r.Context(), id); err != nil {
			return k, err
		}
		k.Disabled = !on
		if err = in.put(r.Context(), k); !errors.Is(err, store.ErrKeyChanged) {
			break
		}
	}
	return k, err
}

package apikeyauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
)

func init() {
	caddy.RegisterModule(new(Admin))
}

// Admin issues, lists, rotates, disables and revokes the API keys of keys_store, on Caddy's admin
// endpoint. It answers in JSON.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (*Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.llm_keys", New: func() caddy.Module { return new(Admin) }}
}

// keysPath is where keys are.
const keysPath = "/llm/keys"

// Routes implements caddy.AdminRouter.
func (ad *Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: keysPath, Handler: caddy.AdminHandlerFunc(ad.all)},
		{Pattern: keysPath + "/", Handler: caddy.AdminHandlerFunc(ad.one)},
	}
}

// keyRow is a key as GET /llm/keys lists it.
type keyRow struct {
	ID          string     `json:"id"`
	Application string     `json:"application"` // empty for none
	Group       string     `json:"group"`
	Models      []string   `json:"models"`  // null for all
	Expires     *time.Time `json:"expires"` // null for never
	Disabled    bool       `json:"disabled"`
	Created     *time.Time `json:"created"`
	// PreviousUntil is when the secret before the last rotation stops working, null if
	// it does not work any more.
	PreviousUntil *time.Time `json:"previous_until"`
}

func rowOf(k *store.Key, now time.Time) keyRow {
	r := keyRow{
		ID: k.ID, Application: k.Application, Group: k.Group, Models: k.Models,
		Expires: instant(k.Expires), Disabled: k.Disabled, Created: instant(k.Created),
	}
	if now.Before(k.Until) {
		r.PreviousUntil = instant(k.Until)
	}
	return r
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// issued is the one answer that has a new key in it.
type issued struct {
	ID  string `json:"id,omitempty"`
	Key string `json:"key"`
}

// all answers GET and POST /llm/keys.
func (ad *Admin) all(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return ad.list(w, r)
	case http.MethodPost:
		return ad.issue(w, r)
	}
	return notAllowed(w, r, "GET, POST")
}

// one answers PATCH and DELETE /llm/keys/{id} and POST /llm/keys/{id}/rotate.
func (ad *Admin) one(w http.ResponseWriter, r *http.Request) error {
	id, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, keysPath+"/"), "/")
	// before anything is asked or told by it
	if apikey.Looks(r.URL.Path) || len(id) > idMost {
		return apiError(http.StatusBadRequest, errSecretID)
	}
	switch action {
	case "":
		switch r.Method {
		case http.MethodPatch:
			return ad.enable(w, r, id)
		case http.MethodDelete:
			return ad.revoke(w, r, id)
		}
		return notAllowed(w, r, "PATCH, DELETE")
	case "rotate":
		if r.Method != http.MethodPost {
			return notAllowed(w, r, "POST")
		}
		return ad.rotate(w, r, id)
	}
	return apiError(http.StatusNotFound, errors.New("there are PATCH and DELETE /llm/keys/{id}, and POST /llm/keys/{id}/rotate"))
}

// idMost is how long an id may be that was issued, in bytes.
const idMost = 128

var errSecretID = errors.New("this is not the id of a key, and may be a key itself, which is known to logs now: revoke it by its id, which GET /llm/keys shows")

// pageSize is how many keys a page has. Tests make it smaller.
var pageSize = 500

// list answers with keys in the order of their ids. Where there are more, the Link
// field leads on.
func (*Admin) list(w http.ResponseWriter, r *http.Request) error {
	in, err := running()
	if err != nil {
		return err
	}
	q := r.URL.Query()
	for name := range q {
		if name != "after" {
			return apiError(http.StatusBadRequest, errors.New("there is one parameter, after: it lists only keys whose ids are after it"))
		}
	}
	if apikey.Looks(q.Get("after")) {
		return apiError(http.StatusBadRequest, errSecretID)
	}
	keys, err := in.keys.List(r.Context(), q.Get("after"), pageSize+1)
	if err != nil {
		return storeError(err)
	}
	if len(keys) > pageSize {
		keys = keys[:pageSize]
		next := url.Values{"after": {keys[pageSize-1].ID}}
		w.Header().Set("Link", "<"+keysPath+"?"+next.Encode()+`>; rel="next"`)
	}
	now := time.Now()
	rows := make([]keyRow, len(keys))
	for i := range keys {
		rows[i] = rowOf(&keys[i], now)
	}
	return answer(w, http.StatusOK, rows)
}

// issue makes a key. Its secret is in this answer and nowhere else.
func (*Admin) issue(w http.ResponseWriter, r *http.Request) error {
	in, err := running()
	if err != nil {
		return err
	}
	var req keyRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	k, err := req.key(time.Now())
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	if at, taken := in.stated(k.ID); taken {
		return apiError(http.StatusConflict, fmt.Errorf("id %q is already that of %v", k.ID, at))
	}
	if in.ring.Emptied() && !req.Anew {
		return apiError(http.StatusServiceUnavailable, errEmptied)
	}
	secret := apikey.New()
	k.Hash = apikey.Hash(secret)
	switch err := in.put(r.Context(), k); {
	case errors.Is(err, store.ErrKeyTaken):
		return apiError(http.StatusConflict, fmt.Errorf("id %q is already that of another key", k.ID))
	case err != nil:
		auditUnconfirmed(r, "API key issued", k.ID, err)
		return storeError(err)
	}
	in.settle(r.Context())
	audit(r, "API key issued", zap.String("key_id", k.ID), zap.String("application", k.Application), zap.String("group", k.Group), zap.Strings("models", k.Models), zap.Timep("expires", instant(k.Expires)))
	return answer(w, http.StatusCreated, issued{k.ID, secret})
}

// revoke forgets a key, with all its secrets.
func (*Admin) revoke(w http.ResponseWriter, r *http.Request, id string) error {
	in, err := running()
	if err != nil {
		return err
	}
	switch err := in.remove(r.Context(), id); {
	case errors.Is(err, store.ErrNoKey) && in.ring.Emptied():
		return apiError(http.StatusServiceUnavailable, errEmptied)
	case errors.Is(err, store.ErrUnavailable):
		in.settle(r.Context()) // it may be gone from the memory of this process
		// Whoever asks again may be told that there is no such key: this is the line, then.
		auditUnconfirmed(r, "API key revoked", id, err)
		return apiError(http.StatusServiceUnavailable, fmt.Errorf("%w; until it is confirmed the key may work, or work again after a crash: send this again until the answer is 204 or 404", err))
	case err != nil:
		return storeError(err)
	}
	in.settle(r.Context())
	audit(r, "API key revoked", zap.String("key_id", id))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// instance is what runs: the store that keys are in, and who knows them.
type instance struct {
	keys     store.Keys
	ring     *ring
	handlers []*Handler
}

var errNoKeysStore = errors.New("no api_key_auth of the running config has its keys in the store: write keys_store into its block")

// errEmptied is the answer where one key more, or a key that there is not, would have the
// keys forgotten that gateways still know.
var errEmptied = errors.New(`the store has lost all keys, and those that gateways know work as long as key_cache says: restore the store, or issue a key with "anew" (llm-key new --anew), which ends all others at once`)

// running is the store of the config that runs.
func running() (*instance, error) {
	serving.mu.Lock()
	defer serving.mu.Unlock()
	n := len(serving.handlers)
	if n == 0 {
		return nil, apiError(http.StatusNotFound, errNoKeysStore)
	}
	r := serving.handlers[n-1].ring
	in := &instance{keys: r.store(), ring: r}
	for _, h := range serving.handlers {
		if h.ring == r {
			in.handlers = append(in.handlers, h)
		}
	}
	return in, nil
}

// stated tells whether a key of that id is in the configuration or a keys file.
func (in *instance) stated(id string) (at origin, ok bool) {
	for _, h := range in.handlers {
		if at, ok = h.index.Load().ids[id]; ok {
			return at, true
		}
	}
	return origin{}, false
}

const (
	// putTries is how often a change or a revocation is sent that the store does not
	// confirm, and putApart how long it takes at least from one time to the next.
	putTries = 4
	putApart = 100 * time.Millisecond
)

// put stores a key, whether or not somebody waits for the answer still: its secret is in
// the answer alone. Where the store does not say what has become of it, it is sent again,
// which stores it once.
func (in *instance) put(ctx context.Context, k store.Key) error {
	ctx = context.WithoutCancel(ctx)
	return untilConfirmed(func() error {
		_, err := in.keys.Put(ctx, k)
		return err
	})
}

// remove forgets a key, as put stores one. That there is no such key any more is what was
// asked for, where there was one.
func (in *instance) remove(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	_, err := in.keys.Get(ctx, id)
	there := err == nil || errors.Is(err, store.ErrDamaged)
	unsure := false
	return untilConfirmed(func() error {
		err := in.keys.Delete(ctx, id)
		if there && unsure && errors.Is(err, store.ErrNoKey) && !in.ring.Emptied() {
			return nil
		}
		unsure = unsure || errors.Is(err, store.ErrUnavailable)
		return err
	})
}

// untilConfirmed does what the store may not confirm, some times.
func untilConfirmed(do func() error) error {
	err := do()
	for range putTries - 1 {
		if !errors.Is(err, store.ErrUnavailable) {
			break
		}
		time.Sleep(putApart)
		err = do()
	}
	return err
}

// settle has this process know of a change before its answer is sent. Others find out
// by themselves, as does this one if the store is slow.
func (in *instance) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = in.ring.Refresh(ctx)
}

// audit logs who has changed what, without any secret.
func audit(r *http.Request, what string, fields ...zap.Field) {
	caddy.Log().Named("llm.keys").Info(what, append(fields, zap.String("remote_addr", r.RemoteAddr))...)
}

// auditUnconfirmed logs a change that may have been made, where the store did not confirm
// it: it is not known to be on the disk.
func auditUnconfirmed(r *http.Request, what, id string, err error) {
	if errors.Is(err, store.ErrUnavailable) {
		audit(r, what+", not confirmed by the store", zap.String("key_id", id), zap.Error(err))
	}
}

// bodyMost bounds a request's body, in bytes.
const bodyMost = 64 << 10

// readBody reads a JSON object, or nothing. No error of it repeats what may be a secret.
func readBody(r *http.Request, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMost+1))
	switch {
	case err != nil:
		return apiError(http.StatusBadRequest, fmt.Errorf("reading the body: %w", err))
	case len(body) > bodyMost:
		return apiError(http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", bodyMost))
	case len(strings.TrimSpace(string(body))) == 0:
		return nil
	}
	if err := checkMembers(body); err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("body: %w", err))
	}
	if err := decodeStrict(body, into); err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("body: %w", err))
	}
	return nil
}

// storeError answers for the store. An id that may be a secret is not repeated.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoKey):
		return apiError(http.StatusNotFound, errors.New("no key of that id was issued: GET /llm/keys lists them"))
	case errors.Is(err, store.ErrDamaged):
		return apiError(http.StatusConflict, errors.New("the record of this key in the store is damaged, and it works for nobody: revoke it and issue another"))
	case errors.Is(err, store.ErrUnavailable):
		return apiError(http.StatusServiceUnavailable, fmt.Errorf("%w; a change may have been made all the same: GET /llm/keys tells what is in force", err))
	}
	return apiError(http.StatusInternalServerError, err)
}

func notAllowed(w http.ResponseWriter, r *http.Request, allow string) error {
	w.Header().Set("Allow", allow)
	return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed", r.Method))
}

func apiError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: err}
}

func answer(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return apiError(http.StatusInternalServerError, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err = w.Write(append(body, '\n'))
	return err
}

// Interface guards
var _ caddy.AdminRouter = (*Admin)(nil)

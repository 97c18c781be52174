package apikeyauth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// keyRequest is the body of POST /llm/keys.
type keyRequest struct {
	// ID is the key's public name. Default: one is made up.
	ID          string `json:"id,omitempty"`
	Application string `json:"application,omitempty"`
	Group       string `json:"group,omitempty"`
	Models      Models `json:"models,omitzero"`
	Expires     string `json:"expires,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	// Anew has a store that has lost all keys begin again with this one.
	Anew bool `json:"anew,omitempty"`
}

// storedID is what ids of issued keys look like: they stand in paths of URLs.
var storedID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// key checks the request and makes a key of it that lacks only its hash. Errors name
// the field.
func (q *keyRequest) key(now time.Time) (store.Key, error) {
	k := store.Key{
		ID: q.ID, Application: q.Application, Group: q.Group, Models: q.Models,
		Disabled: q.Disabled, Created: now.Truncate(time.Millisecond),
	}
	if k.ID == "" {
		k.ID = apikey.NewID()
	}
	if err := checkPublic(q); err != nil {
		return k, err
	}
	if !storedID.MatchString(k.ID) {
		return k, errors.New(`id must be letters, digits, ".", "_" and "-", 1 to 128 of them, the first a letter or a digit`)
	}
	if q.Expires != "" {
		var err error
		if k.Expires, err = parseTime("expires", q.Expires); err != nil {
			return k, err
		}
		k.Expires = k.Expires.Truncate(time.Millisecond)
		if !now.Before(k.Expires) {
			return k, fmt.Errorf("expires %q is over already", q.Expires)
		}
	}
	_, err := grantOf(&k)
	return k, err
}

// checkPublic refuses what seems to be a secret in a field that errors repeat. It repeats
// nothing; checkName does so for the names.
func checkPublic(req *keyRequest) error {
	switch {
	case apikey.Looks(req.ID):
		return errors.New("id holds an API key, but is public")
	case apikey.Looks(req.Expires):
		return errors.New("expires holds an API key, but is public")
	case slices.ContainsFunc(req.Models, apikey.Looks):
		return errors.New("models holds an API key, but is public")
	}
	return nil
}

// rotateRequest is the body of POST /llm/keys/{id}/rotate.
type rotateRequest struct {
	// Grace is how long the secret before works yet. Default: 24h.
	Grace *string `json:"grace,omitempty"`
	// End says which secret ends at once where the key has two: "previous" or "current".
	// Without it, and with a grace, such a key is not rotated.
	End string `json:"end,omitempty"`
}

const (
	defaultGrace = 24 * time.Hour
	// graceMost is the longest: a secret that works for ever was not rotated.
	graceMost = 90 * 24 * time.Hour
)

func (q *rotateRequest) grace() (time.Duration, error) {
	if q.Grace == nil {
		return defaultGrace, nil
	}
	return parseGrace(*q.Grace)
}

func parseGrace(s string) (time.Duration, error) {
	grace, err := caddy.ParseDuration(s)
	if err != nil || grace < 0 || grace > graceMost {
		return 0, errors.New("grace must be a duration from 0s to 90d, such as 24h")
	}
	return grace, nil
}

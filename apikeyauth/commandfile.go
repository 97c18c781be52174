package apikeyauth

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
)

// fileManager manages the keys of a keys file.
type fileManager struct {
	path string
	now  func() time.Time
}

func (m *fileManager) issue(req *keyRequest) (issued, error) {
	k, err := req.key(m.now())
	if err != nil {
		return issued{}, err
	}
	secret := apikey.New()
	entry := &Key{
		ID: k.ID, Hash: hashText(secret), Application: k.Application, Group: k.Group, Models: req.Models,
		Expires: req.Expires, Disabled: k.Disabled,
	}
	err = changeFile(m.path, true, func(t *keysText) ([]byte, error) { return t.add(entry) })
	if err != nil {
		return issued{}, err
	}
	return issued{k.ID, secret}, nil
}

// hashText is a key's hash as configurations state it.
func hashText(secret string) string {
	h := apikey.Hash(secret)
	return hashPrefix + hex.EncodeToString(h[:])
}

func (m *fileManager) list() ([]keyRow, error) {
	text, _, err := readKeysFile(m.path)
	if err != nil {
		return nil, err
	}
	t, err := parseText(text)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", m.path, err)
	}
	rows := make([]keyRow, len(t.keys))
	for i := range t.keys {
		if rows[i], err = rowOfStated(&t.keys[i], m.now()); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func rowOfStated(k *Key, now time.Time) (r keyRow, err error) {
	r = keyRow{ID: k.ID, Application: k.Application, Group: k.Group, Models: k.Models, Disabled: k.Disabled}
	if k.Expires != "" {
		at, err := parseTime("expires", k.Expires)
		if err != nil {
			return r, err
		}
		r.Expires = instant(at)
	}
	if k.Previous != nil {
		until, err := parseTime("until", k.Previous.Until)
		if err != nil {
			return r, err
		}
		if now.Before(until) {
			r.PreviousUntil = instant(until)
		}
	}
	return r, nil
}

func (m *fileManager) rotate(id, grace, end string) (issued, error) {
	d, err := parseGrace(grace)
	if err == nil {
		err = checkEnd(end)
	}
	if err != nil {
		return issued{}, err
	}
	until := ""
	if d > 0 {
		until = m.now().Add(d).UTC().Format(time.RFC3339)
	}
	secret := apikey.New()
	err = changeFile(m.path, false, func(t *keysText) ([]byte, error) {
		i, err := t.find(id)
		if err != nil {
			return nil, err
		}
		k := &t.keys[i]
		if k.Expires != "" {
			if at, err := parseTime("expires", k.Expires); err != nil || !m.now().Before(at) {
				return nil, errors.Join(err, fmt.Errorf("the key %q has expired, and would not work with another secret either: issue a new one", id))
			}
		}
		before := k.Hash
		if k.Previous != nil && d > 0 {
			switch at, err := parseTime("until", k.Previous.Until); {
			case err != nil:
				return nil, err
			case !m.now().Before(at):
			case end == "":
				return nil, twoSecrets(id, at)
			case end == endCurrent:
				before = k.Previous.Hash
			}
		}
		return t.rotateFrom(id, before, hashText(secret), until)
	})
	if err != nil {
		return issued{}, err
	}
	return issued{id, secret}, nil
}

func (m *fileManager) enable(id string, on bool) error {
	return changeFile(m.path, false, func(t *keysText) ([]byte, error) { return t.enable(id, on) })
}

func (m *fileManager) revoke(id string) error {
	return changeFile(m.path, false, func(t *keysText) ([]byte, error) { return t.remove(id) })
}

// Interface guards
var (
	_ manager = (*adminManager)(nil)
	_ manager = (*fileManager)(nil)
)

package store

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// keyRecord is how a key is written down. Times are Unix milliseconds. What an older
// version does not know of, it leaves out.
type keyRecord struct {
	ID          string   `json:"id"`
	Hash        string   `json:"hash"` // URL-safe base64 without padding
	Application string   `json:"app,omitempty"`
	Group       string   `json:"group,omitempty"`
	Models      []string `json:"models,omitzero"`
	Expires     int64    `json:"exp,omitempty"`
	Disabled    bool     `json:"off,omitempty"`
	Previous    string   `json:"prev,omitempty"`
	Until       int64    `json:"until,omitempty"`
	Created     int64    `json:"made,omitempty"`
}

// Record is the key in the form that stores write, without its revision. Equal keys
// have equal records.
func (k *Key) Record() []byte {
	r := keyRecord{
		ID: k.ID, Hash: base64.RawURLEncoding.EncodeToString(k.Hash[:]),
		Application: k.Application, Group: k.Group, Models: k.Models,
		Expires: unixMilli(k.Expires), Disabled: k.Disabled, Created: unixMilli(k.Created),
	}
	if !k.Until.IsZero() {
		r.Previous, r.Until = base64.RawURLEncoding.EncodeToString(k.Previous[:]), unixMilli(k.Until)
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return data
}

// ParseKey reads a record. Its revision is left 0. No error holds anything of the
// record but a valid key's id.
func ParseKey(record []byte) (Key, error) {
	var r keyRecord
	if err := json.Unmarshal(record, &r); err != nil {
		return Key{}, errors.New("reading a key: it is not JSON of the form it was written in")
	}
	if r.ID == "" {
		return Key{}, errors.New("reading a key: it has no id")
	}
	k := Key{
		ID: r.ID, Application: r.Application, Group: r.Group, Models: r.Models,
		Expires: ofMilli(r.Expires), Disabled: r.Disabled, Created: ofMilli(r.Created),
	}
	if !parseHash(&k.Hash, r.Hash) {
		return Key{}, fmt.Errorf("reading the key %q: its hash is none", r.ID)
	}
	if r.Until != 0 {
		if k.Until = ofMilli(r.Until); !parseHash(&k.Previous, r.Previous) {
			return Key{}, fmt.Errorf("reading the key %q: its previous hash is none", r.ID)
		}
	}
	return k, nil
}

// RecordID is the id in a record that ParseKey cannot read, empty if that cannot be read
// either.
func RecordID(record []byte) string {
	var r struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(record, &r) != nil {
		return ""
	}
	return r.ID
}

func parseHash(h *KeyHash, s string) bool {
	data, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && copy(h[:], data) == len(h) && len(data) == len(h)
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func ofMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

package store

import (
	"crypto/sha256"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestKeyRecordsThatAreNone(t *testing.T) {
	hash := `"hash":"` + strings.Repeat("A", 43) + `"`
	for _, tc := range []struct{ name, record, want string }{
		{"no JSON", `{`, "not JSON"},
		{"another type", `{"id":5}`, "not JSON"},
		{"no id", `{` + hash + `}`, "no id"},
		{"no hash", `{"id":"a"}`, `key "a": its hash is none`},
		{"a short hash", `{"id":"a","hash":"AAAA"}`, "its hash is none"},
		{"a hash that is none", `{"id":"a","hash":"` + strings.Repeat("!", 43) + `"}`, "its hash is none"},
		{"a hash with bits too many", `{"id":"a","hash":"` + strings.Repeat("B", 43) + `"}`, "its hash is none"},
		{"until without a previous hash", `{"id":"a",` + hash + `,"until":5}`, "previous hash is none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if k, err := ParseKey([]byte(tc.record)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v, %v, want %q", k, err, tc.want)
			}
		})
	}
	if _, err := ParseKey([]byte(`{"id":"a",` + hash + `,"later":1}`)); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
}

func TestSumsOfRevisions(t *testing.T) {
	const high = revisions - 1
	sum := AddRevision(AddRevision(AddRevision(0, 0, high), 0, high), 0, 5)
	if sum >= revisions || sum < 0 {
		t.Errorf("the sum is %d", sum)
	}
	other := AddRevision(AddRevision(AddRevision(0, 0, 5), 0, 7), 7, high)
	if other = AddRevision(other, 0, high); other != sum {
		t.Errorf("the same keys have the sums %d and %d", sum, other)
	}
	if sum = AddRevision(AddRevision(AddRevision(sum, high, 0), 5, 0), high, 0); sum != 0 {
		t.Errorf("no keys have the sum %d", sum)
	}
}

func FuzzParseKey(f *testing.F) {
	k := Key{ID: "a", Hash: sha256.Sum256([]byte("a")), Models: []string{}, Until: time.UnixMilli(5).UTC(), Expires: time.UnixMilli(7).UTC()}
	f.Add(k.Record())
	f.Fuzz(func(t *testing.T, record []byte) {
		k, err := ParseKey(record)
		if err != nil {
			return
		}
		if again, err := ParseKey(k.Record()); err != nil || !reflect.DeepEqual(again, k) {
			t.Errorf("%+v has become %+v, %v", k, again, err)
		}
	})
}

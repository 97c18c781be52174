package memory

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// A record that cannot be read may be the one that disabled the key: nothing that was
// said of it before holds, and it stays in the file for who can read it.
func TestAKeyWithADamagedRecordWorksForNobody(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	a := putKey(t, s, keyOf("a"))
	putKey(t, s, keyOf("b"))
	mustClose(t, s)

	d, err := appendlog.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := d.Open(keysName, keysVersion, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"id":"a","hash":"none","off":true}`, `{"id":7}`, `what`} {
		record := binary.AppendVarint(binary.AppendVarint(nil, a.Revision+1), 0)
		err = errors.Join(err, l.Append(append(record, text...)))
	}
	if err := errors.Join(err, l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}

	for range 3 {
		var found Restored
		s, found = persisted(t, c, dir)
		if found.Keys != 2 || found.Unread != 0 {
			t.Errorf("found %+v in %s", found, filepath.Base(dir))
		}
		wantKeys(t, s, "a", "b")
		if _, err := s.Keys().Find(t.Context(), a.Hash); !errors.Is(err, store.ErrNoKey) {
			t.Errorf("the secret from before: %v", err)
		}
		if _, err := s.Keys().Get(t.Context(), "a"); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("getting it: %v", err)
		}
		ch, err := s.Keys().Changes(t.Context(), 0, 10)
		if err != nil || len(ch.Keys) != 2 || !ch.Keys[1].Damaged && !ch.Keys[0].Damaged {
			t.Errorf("got %+v, %v", ch, err)
		}
		if err := s.keys.rewrite(s.keys.log); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
	}
	s, found := persisted(t, c, dir)
	if found.KeysUnread != 0 { // they were told of, and say nothing
		t.Errorf("found %+v", found)
	}
	deleteKey(t, s, "a")
	putKey(t, s, keyOf("a"))
	next, _ := persisted(t, c, killed(t, dir))
	wantKeys(t, next, "a", "b")
	if _, err := next.Keys().Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

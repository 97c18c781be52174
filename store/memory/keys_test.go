package memory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func TestKeysConformance(t *testing.T) {
	storetest.RunKeys(t, func(_ *testing.T, now func() time.Time) store.Keys { return New(Options{Now: now}).Keys() })
}

func TestKeysConformancePersisted(t *testing.T) {
	storetest.RunKeys(t, func(t *testing.T, now func() time.Time) store.Keys {
		s := New(Options{Now: now})
		if _, err := s.Persist(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Keys()
	})
}

func keyOf(id string) store.Key { return store.Key{ID: id, Hash: sha256.Sum256([]byte(id))} }

func putKey(t testing.TB, s *Store, k store.Key) store.Key {
	t.Helper()
	revision, err := s.Keys().Put(context.Background(), k)
	if err != nil {
		t.Fatal(err)
	}
	k.Revision = revision
	return k
}

func deleteKey(t testing.TB, s *Store, id string) {
	t.Helper()
	if err := s.Keys().Delete(context.Background(), id); err != nil {
		t.Fatal(err)
	}
}

// keyIDs are those of the keys that there are.
func keyIDs(t testing.TB, s *Store) (ids []string) {
	t.Helper()
	list, err := s.Keys().List(context.Background(), "", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		ids = append(ids, k.ID)
	}
	return ids
}

func wantKeys(t testing.TB, s *Store, want ...string) {
	t.Helper()
	if got := keyIDs(t, s); !slices.Equal(got, want) {
		t.Errorf("got the keys %q, want %q", got, want)
	}
}

// killed is a directory as a process that is killed now leaves it.
func killed(t testing.TB, dir string) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestKeysOutliveAProcessThatIsKilled(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	kept := putKey(t, s, keyOf("kept"))
	kept.Group = "gold"
	kept = putKey(t, s, kept)
	putKey(t, s, keyOf("gone"))
	deleteKey(t, s, "gone")
	last := kept.Revision + 10
	dir = killed(t, dir)
	s, found := persisted(t, c, dir)
	if found.Keys != 1 || found.KeysDropped != 0 {
		t.Errorf("found %+v", found)
	}
	wantKeys(t, s, "kept")
	if got, err := s.Keys().Get(t.Context(), "kept"); err != nil || got.Revision != kept.Revision || got.Group != "gold" {
		t.Errorf("got %+v, %v", got, err)
	}
	// who has followed the process before goes on
	ch, err := s.Keys().Changes(t.Context(), kept.Revision, 10)
	if err != nil || len(ch.Keys) != 1 || !ch.Keys[0].Deleted || ch.Keys[0].ID != "gone" || ch.Sum != kept.Revision {
		t.Errorf("got %+v, %v", ch, err)
	}
	if next := putKey(t, s, keyOf("next")); next.Revision <= kept.Revision+1 || next.Revision > last {
		t.Errorf("revision %d follows %d", next.Revision, kept.Revision)
	}
}

func TestAnUnfinishedRecordOfAKeyIsCutOff(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	putKey(t, s, keyOf("a"))
	putKey(t, s, keyOf("b"))
	dir = killed(t, dir)
	path := filepath.Join(dir, keysName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	s, found := persisted(t, c, dir)
	if found.KeysDropped == 0 || found.Keys != 1 || found.Dropped != 0 {
		t.Errorf("found %+v", found)
	}
	wantKeys(t, s, "a")
}

func TestKeysMoveToAnotherDirectory(t *testing.T) {
	c, old, other := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, other)
	putKey(t, s, keyOf("both"))
	putKey(t, s, keyOf("there"))
	mustClose(t, s)
	c.step(time.Second)

	s, _ = persisted(t, c, old)
	putKey(t, s, keyOf("here"))
	later := keyOf("both")
	later.Group = "later"
	putKey(t, s, later)
	if _, err := s.Persist(other); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "both", "here", "there")
	putKey(t, s, keyOf("new"))
	s, _ = persisted(t, c, killed(t, other))
	wantKeys(t, s, "both", "here", "new", "there")
	if got, err := s.Keys().Get(t.Context(), "both"); err != nil || got.Group != "later" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(old, keysName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file: %v", err)
	}
}

func TestKeysInMemoryAreWrittenOnceThereIsADirectory(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := c.store()
	putKey(t, s, keyOf("a"))
	if s.keys.Durable() {
		t.Error("durable without a directory")
	}
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	if !s.keys.Durable() {
		t.Error("not durable with a directory")
	}
	s2, _ := persisted(t, c, killed(t, dir))
	wantKeys(t, s2, "a")
	mustClose(t, s)
	wantKeys(t, s, "a")
	if s.keys.Durable() {
		t.Error("durable after the end")
	}
}

func TestTheFileOfKeysDoesNotGrowForEver(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range 3000 {
		k, _ := s.Keys().Get(t.Context(), "k")
		k.ID, k.Hash = "k", sha256.Sum256(fmt.Append(nil, i))
		putKey(t, s, k)
	}
	info, err := os.Stat(filepath.Join(dir, keysName))
	if err != nil || info.Size() > 200_000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	s, _ = persisted(t, c, killed(t, dir))
	k, err := s.Keys().Find(t.Context(), sha256.Sum256(fmt.Append(nil, 2999)))
	if err != nil || k.ID != "k" {
		t.Errorf("got %+v, %v", k, err)
	}
}

func TestDeletionsAreForgottenAfterAnHour(t *testing.T) {
	c := newClock()
	s := c.store()
	for i := range 100 {
		id := fmt.Sprint(i)
		putKey(t, s, keyOf(id))
		deleteKey(t, s, id)
	}
	c.step(remembered - time.Second)
	putKey(t, s, keyOf("a"))
	if ch, err := s.Keys().Changes(t.Context(), 0, 1000); err != nil || len(ch.Keys) != 101 {
		t.Errorf("%d changes, %v", len(ch.Keys), err)
	}
	c.step(2 * pruneEvery)
	putKey(t, s, keyOf("b"))
	if ch, err := s.Keys().Changes(t.Context(), 0, 1000); err != nil || len(ch.Keys) != 2 {
		t.Errorf("%d changes, %v", len(ch.Keys), err)
	}
}

func TestNoSecretIsOnTheDisk(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	secret := []byte("llmk_secret")
	putKey(t, s, store.Key{ID: "a", Hash: sha256.Sum256(secret)})
	data, err := os.ReadFile(filepath.Join(dir, keysName))
	if err != nil || bytes.Contains(data, secret) || !bytes.Contains(data, []byte(`"id":"a"`)) {
		t.Errorf("got %q, %v", data, err)
	}
}

func FuzzKeyRecord(f *testing.F) {
	s := newClock().store()
	putKey(f, s, keyOf("a"))
	f.Add(s.keys.record("a"))
	deleteKey(f, s, "a")
	f.Add(s.keys.record("a"))
	f.Fuzz(func(t *testing.T, record []byte) {
		key, at, err := parseRecord(record)
		if err != nil || at != 0 {
			return
		}
		again, err := store.ParseKey(key.Record())
		again.Revision = key.Revision
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", key) {
			t.Errorf("%+v has become %+v, %v", key, again, err)
		}
	})
}

// A key is revoked while the directory that it is in is not in use, or after it was
// copied, and nobody is told so any more when the directory is.
func TestRevokedKeysDoNotComeBackWithADirectory(t *testing.T) {
	c, dir, copied := newClock(), t.TempDir(), t.TempDir()
	persist := func(s *Store, dir string) {
		t.Helper()
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := persisted(t, c, dir)
	for _, id := range []string{"kept", "revoked off", "revoked", "again"} {
		putKey(t, s, keyOf(id))
	}
	if err := os.CopyFS(copied, os.DirFS(killed(t, dir))); err != nil {
		t.Fatal(err)
	}
	deleteKey(t, s, "revoked")
	persist(s, "")
	deleteKey(t, s, "revoked off")
	deleteKey(t, s, "again")
	c.step(2 * remembered)
	putKey(t, s, keyOf("new"))
	again := putKey(t, s, keyOf("again"))
	c.step(2 * remembered)
	if ch, err := s.Keys().Changes(t.Context(), 0, 100); err != nil || len(ch.Keys) != 3 {
		t.Errorf("%d changes are told, %v", len(ch.Keys), err)
	}
	for _, dir := range []string{dir, copied} {
		persist(s, dir)
		wantKeys(t, s, "again", "kept", "new")
		if k, err := s.Keys().Get(t.Context(), "again"); err != nil || k.Revision != again.Revision {
			t.Errorf("got %+v, %v", k, err)
		}
		next, _ := persisted(t, c, killed(t, dir))
		wantKeys(t, next, "again", "kept", "new")
		mustClose(t, next)
	}
}

// Keys are issued and revoked while a directory is taken and given back.
func TestKeysThatChangeWhileADirectoryIsTakenAreWritten(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := c.store()
	defer s.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond): // or there would be very many
			}
			putKey(t, s, keyOf(fmt.Sprint(i)))
			if i%2 == 0 {
				deleteKey(t, s, fmt.Sprint(i))
			}
		}
	}()
	for range 10 {
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Persist(""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	close(stop)
	<-done
	next, _ := persisted(t, c, killed(t, dir))
	if got, want := keyIDs(t, next), keyIDs(t, s); !slices.Equal(got, want) {
		t.Errorf("%d keys are on the disk, want %d", len(got), len(want))
	}
}

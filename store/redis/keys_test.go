//go:build unix

package redis

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

// fresh opens keys under a prefix that no other test has.
func fresh(t *testing.T, o Options) *Keys {
	prefixes++
	o.Prefix = fmt.Sprintf("%d:", prefixes)
	return open(t, o).Keys().(*Keys)
}

var prefixes int

func TestKeysConformance(t *testing.T) {
	_, o := single(t)
	storetest.RunKeys(t, func(t *testing.T, _ func() time.Time) store.Keys { return fresh(t, o) })
}

func TestKeysConformanceInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	storetest.RunKeys(t, func(t *testing.T, _ func() time.Time) store.Keys {
		return fresh(t, Options{Addresses: cluster.Addrs(), Cluster: true})
	})
}

func put(t testing.TB, k *Keys, key store.Key) store.Key {
	t.Helper()
	revision, err := k.Put(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	key.Revision = revision
	return key
}

func keyOf(id string) store.Key { return store.Key{ID: id, Hash: sha256.Sum256([]byte(id))} }

// changes returns the ids that were changed after a revision, deleted ones with a minus.
func changes(t testing.TB, k *Keys, since int64) (ids []string) {
	t.Helper()
	ch, err := k.Changes(t.Context(), since, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range ch.Keys {
		if key.Deleted {
			key.ID = "-" + key.ID
		}
		ids = append(ids, key.ID)
	}
	return ids
}

func TestDeletionsAreToldForAnHour(t *testing.T) {
	server, o := single(t)
	client := server.Client()
	at := time.Now()
	now := sharedClock(t, client, func() time.Time { return at })
	k := fresh(t, o)
	k.write = newScript(stepped(keysWriteLua))
	now()
	for _, id := range []string{"a", "b", "c"} {
		put(t, k, keyOf(id))
	}
	if err := k.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Hour - time.Minute)
	now()
	if err := k.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := changes(t, k, 0); !slices.Equal(got, []string{"c", "-a", "-b"}) {
		t.Errorf("after 59 minutes: got %q", got)
	}
	at = at.Add(2 * time.Minute)
	now()
	put(t, k, keyOf("d"))
	if got := changes(t, k, 0); !slices.Equal(got, []string{"c", "-b", "d"}) {
		t.Errorf("after 61 minutes: got %q", got)
	}
	at = at.Add(2 * time.Hour)
	now()
	put(t, k, keyOf("b")) // which there is again
	if got := changes(t, k, 0); !slices.Equal(got, []string{"c", "d", "b"}) {
		t.Errorf("after three hours: got %q", got)
	}
	if n := client.ZCard(t.Context(), k.names[5]).Val(); n != 0 {
		t.Errorf("%d deletions are remembered", n)
	}
}

func TestAnEmptiedServerSaysSo(t *testing.T) {
	server, o := single(t)
	k := fresh(t, o)
	a := put(t, k, keyOf("a"))
	if err := k.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if ch, err := k.Changes(t.Context(), a.Revision, 10); err != nil || ch.Last <= a.Revision || ch.Sum != 0 {
		t.Errorf("without a key: got %+v, %v", ch, err)
	}
	if err := server.Client().Del(t.Context(), k.names...).Err(); err != nil {
		t.Fatal(err)
	}
	if ch, err := k.Changes(t.Context(), a.Revision, 10); err != nil || ch.Last != 0 || ch.Sum != 0 {
		t.Errorf("emptied: got %+v, %v", ch, err)
	}
}

// A server that evicts drops any of the names. Nobody is told then that keys were
// deleted, and all can be revoked.
func TestAPartThatIsEvictedIsNoDeletion(t *testing.T) {
	server, o := single(t)
	for i, name := range []string{"records", "hashes", "log", "ids", "meta"} {
		t.Run(name, func(t *testing.T) {
			k := fresh(t, o)
			keys := []store.Key{put(t, k, keyOf("a")), put(t, k, keyOf("b"))}
			if err := k.Delete(t.Context(), put(t, k, keyOf("c")).ID); err != nil {
				t.Fatal(err)
			}
			if err := server.Client().Del(t.Context(), k.names[i]).Err(); err != nil {
				t.Fatal(err)
			}
			for _, more := range []bool{false, true} {
				if more {
					put(t, k, keyOf("more"))
				}
				for _, key := range keys {
					if _, err := k.Get(t.Context(), key.ID); errors.Is(err, store.ErrNoKey) {
						t.Errorf("%s, more %t: %v", key.ID, more, err)
					}
					if _, err := k.Find(t.Context(), key.Hash); errors.Is(err, store.ErrNoKey) {
						t.Errorf("%s by its secret, more %t: %v", key.ID, more, err)
					}
				}
				ch, err := k.Changes(t.Context(), 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				var sum int64
				for _, key := range ch.Keys {
					if key.Deleted && key.ID != "c" {
						t.Errorf("%s is told to be deleted, more %t", key.ID, more)
					}
					if !key.Deleted {
						sum = store.AddRevision(sum, 0, key.Revision)
					}
				}
				if !ch.Partial && sum != ch.Sum {
					t.Errorf("more %t: the sum is %d, want %d", more, ch.Sum, sum)
				}
			}
			last := keys[1].Revision
			for _, id := range []string{"a", "b", "more"} {
				if err := k.Delete(t.Context(), id); err != nil {
					t.Errorf("deleting %s: %v", id, err)
				}
				ch, err := k.Changes(t.Context(), last, 10)
				if err != nil || len(ch.Keys) == 0 {
					t.Fatalf("after deleting %s: got %+v, %v", id, ch, err)
				}
				newest := ch.Keys[len(ch.Keys)-1]
				if newest.ID != id || !newest.Deleted || newest.Revision <= last {
					t.Errorf("after deleting %s: got %+v", id, newest)
				}
				last = newest.Revision
				if _, err := k.Find(t.Context(), keyOf(id).Hash); err == nil {
					t.Errorf("the secret of %s leads to it still", id)
				}
			}
			if ch, err := k.Changes(t.Context(), 0, 10); err != nil || ch.Partial || ch.Sum != 0 {
				t.Errorf("in the end: got %+v, %v", ch, err)
			}
			for name, want := range map[int]int64{0: 0, 1: 0, 3: 0} {
				n := server.Client().HLen(t.Context(), k.names[name])
				if name == 3 {
					n = server.Client().ZCard(t.Context(), k.names[name])
				}
				if n.Val() != want {
					t.Errorf("%s has %d left", k.names[name], n.Val())
				}
			}
		})
	}
}

func TestRevisionsRiseWhenTheClockStepsBack(t *testing.T) {
	server, o := single(t)
	at := time.Now()
	now := sharedClock(t, server.Client(), func() time.Time { return at })
	k := fresh(t, o)
	k.write = newScript(stepped(keysWriteLua))
	now()
	a := put(t, k, keyOf("a"))
	at = at.Add(-time.Hour)
	now()
	if b := put(t, k, keyOf("b")); b.Revision != a.Revision+1 {
		t.Errorf("revision %d follows %d", b.Revision, a.Revision)
	}
}

// Changes whose answers are lost are sent again, by the store or by who asked for them,
// and are made once.
func TestKeysWhoseAnswersAreLost(t *testing.T) {
	server, o := single(t)
	proxy := redistest.NewProxy(t, server, 1)
	k := fresh(t, Options{Addresses: []string{proxy.Addr()}})
	direct := open(t, Options{Addresses: o.Addresses, Prefix: k.s.prefix}).Keys()
	proxy.Set(redistest.Faults{Replies: 0.4})
	failed := 0
	until := func(change func() error, also error) {
		t.Helper()
		for {
			err := change()
			if err == nil || failed > 0 && errors.Is(err, also) {
				return
			}
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			failed++
		}
	}
	for i := range 60 {
		key := keyOf(fmt.Sprint("k", i))
		until(func() (err error) { key.Revision, err = k.Put(t.Context(), key); return err }, nil)
		if got, err := direct.Get(t.Context(), key.ID); err != nil || got.Revision != key.Revision {
			t.Fatalf("got %+v, %v, want revision %d", got, err, key.Revision)
		}
		if i%2 == 0 {
			until(func() error { return k.Delete(t.Context(), key.ID) }, store.ErrNoKey)
			if _, err := direct.Get(t.Context(), key.ID); !errors.Is(err, store.ErrNoKey) {
				t.Fatalf("after deleting: %v", err)
			}
		}
	}
	if failed > 30 {
		t.Errorf("%d of 90 changes have failed", failed)
	}
}

func TestADamagedKeyHidesNoOther(t *testing.T) {
	server, o := single(t)
	k := fresh(t, o)
	for _, id := range []string{"a", "b", "c"} {
		put(t, k, keyOf(id))
	}
	for _, record := range []string{"short", strings.Repeat("x", 100)} {
		if err := server.Client().HSet(t.Context(), k.names[0], "b", record).Err(); err != nil {
			t.Fatal(err)
		}
		if got := changes(t, k, 0); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("got %q", got)
		}
		list, err := k.List(t.Context(), "", 10)
		if err != nil || len(list) != 3 || !list[1].Disabled || list[1].Hash != (store.KeyHash{}) {
			t.Errorf("got %+v, %v", list, err)
		}
		if _, err := k.Get(t.Context(), "b"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("getting it: %v", err)
		}
	}
}

func TestKeysOfAServerThatIsAway(t *testing.T) {
	server, o := single(t)
	k := fresh(t, o)
	server.Kill()
	_, err := k.Put(t.Context(), keyOf("a"))
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("putting: %v", err)
	}
	if err := k.Delete(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("deleting: %v", err)
	}
	if _, err := k.Changes(t.Context(), 0, 1); !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), server.Addr()) {
		t.Errorf("asking for changes: %v", err)
	}
}

// A key that expired long ago is forgotten by its revision: another of the same id, which
// was issued meanwhile, stays.
func TestAKeyIsForgottenByItsRevision(t *testing.T) {
	_, o := single(t)
	k := fresh(t, o)
	old := keyOf("a")
	old.Expires = time.Now().Add(-2 * store.KeepExpired).Truncate(time.Millisecond)
	old = put(t, k, old)
	if err := k.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{false, true} {
		if there {
			put(t, k, keyOf("a"))
		}
		if answer, _, err := k.change(t.Context(), "delete", "a", "", old.Revision); err != nil || answer != "changed" {
			t.Errorf("there is another, %t: got %q, %v", there, answer, err)
		}
	}
	if _, err := k.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A part of the keys is gone, or a record cannot be read: nothing is forgotten by it.
func TestWhatCannotBeReadIsNotForgotten(t *testing.T) {
	server, o := single(t)
	client := server.Client()
	k := fresh(t, o)
	for _, id := range []string{"a", "b"} {
		key := keyOf(id)
		key.Expires = time.Now().Add(-2 * store.KeepExpired).Truncate(time.Millisecond)
		put(t, k, key)
	}
	if err := client.HSet(t.Context(), k.names[0], "a", "damaged").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Rename(t.Context(), k.names[4], "aside").Err(); err != nil {
		t.Fatal(err)
	}
	if ids, err := k.Expire(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("without the last revision: got %q, %v", ids, err)
	}
	if err := client.Rename(t.Context(), "aside", k.names[4]).Err(); err != nil {
		t.Fatal(err)
	}
	if ids, err := k.Expire(t.Context()); err != nil || !slices.Equal(ids, []string{"b"}) {
		t.Errorf("got %q, %v", ids, err)
	}
}

func TestClosedKeysSaySo(t *testing.T) {
	_, o := single(t)
	k := fresh(t, o)
	put(t, k, keyOf("a"))
	if err := k.s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Changes(t.Context(), 0, 1); !errors.Is(err, store.ErrKeysClosed) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("asking for changes: %v", err)
	}
}

func TestKeysNeedNoMoreThanTheirOwnNames(t *testing.T) {
	server := redistest.Start(t, redistest.User("gateway", "pw", "~own:*", "+@all", "-@dangerous"))
	s := open(t, Options{Addresses: []string{server.Addr()}, Username: "gateway", Password: "pw", Prefix: "own:"})
	k := s.Keys().(*Keys)
	put(t, k, keyOf("a"))
	if err := k.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	changes(t, k, 0)
}

// Keys and counters do not meet, whatever an instance is called.
func TestInstancesNamedAsKeysAreKept(t *testing.T) {
	_, o := single(t)
	k := fresh(t, o)
	put(t, k, keyOf("a"))
	for _, name := range []string{"records", "!records", "!keys", "log", "meta"} {
		if list, err := k.s.Entities(t.Context(), name, "", 10); err != nil || len(list) != 0 {
			t.Errorf("%s: got %+v, %v", name, list, err)
		}
	}
}

//go:build unix

package redis

import (
	"strconv"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestReplicasThatComeAndGoLeaveNothingBehind(t *testing.T) {
	server, o := single(t)
	c := server.Client()
	e := store.Entity{Instance: "tokens", Consumer: "app"}
	const replicas, days = 20, 5
	for day := range days {
		stores := make([]*Store, replicas)
		for i := range stores {
			stores[i] = open(t, o)
			if err := stores[i].Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(c.Keys(t.Context(), "replica:*").Val()); n != replicas {
			t.Errorf("day %d: %d numbers are leased", day, n)
		}
		for _, s := range stores {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 1 {
		t.Errorf("keys %q are left", keys)
	}
	if n := c.HLen(t.Context(), "{app}tokens").Val(); n != replicas+1 {
		t.Errorf("%d fields are left", n)
	}
	// And those that come next are not taken for those before.
	s := open(t, o)
	results := make([]store.Result, 1)
	if err := s.Read(t.Context(), e, []*store.Rule{tokens}, results); err != nil || results[0].Used != replicas*days {
		t.Errorf("used %d, %v", results[0].Used, err)
	}
}

func TestReplicasTakeTheirOwnNumberBack(t *testing.T) {
	server, o := single(t)
	for range 3 {
		if _, err := open(t, o).replica(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fourth := New(o) // killed: it never closes
	if _, err := fourth.replica(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Identity = fourth.Identity()
	again := open(t, o)
	r, err := again.replica(t.Context())
	if err != nil || r.number != 3 || again.Identity() != fourth.Identity() {
		t.Errorf("number %d, %q after %q, %v", r.number, again.Identity(), fourth.Identity(), err)
	}
	for _, want := range []time.Duration{leasedFirst, leased} {
		if ttl := server.Client().PTTL(t.Context(), "replica:3").Val(); ttl <= want/2 || ttl > want {
			t.Errorf("leased for %s of %s", ttl, want)
		}
		again.renewLease()
	}
	if err := fourth.client.Close(); err != nil {
		t.Fatal(err)
	}
}

// A fleet whose processes crash over and over leases many numbers.
func TestFreeNumbersAreFoundInFewRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	pipe := server.Client().Pipeline()
	const taken = searched + 100
	for i := range taken {
		pipe.Set(t.Context(), "replica:"+strconv.Itoa(i), "another", time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Addresses: []string{server.Addr()}})
	before := evaluations(t, server.Client())
	r, err := s.replica(t.Context())
	if err != nil || r.number != taken {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := evaluations(t, server.Client()) - before; n > 4 {
		t.Errorf("%d numbers were tried", n)
	}
	if r, err := s.claimAmong(t.Context(), 0, searched); r != nil || err != nil {
		t.Errorf("claimed %+v, %v", r, err)
	}
}

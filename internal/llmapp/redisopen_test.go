package llmapp

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/outage"
)

// stuck is a remote that takes for ever to close.
type stuck struct {
	outage.Remote
	closing *atomic.Int64
}

func (s stuck) Identity() string { return "" }
func (s stuck) Pending() int     { return 0 }
func (s stuck) Export() [][]byte { return nil }
func (s stuck) Close(ctx context.Context) error {
	s.closing.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// However many stores are handing over, a process that ends waits for all of them
// together, and no longer than for one.
func TestExitHurriesStoresThatAreLeaving(t *testing.T) {
	const stores = 5
	var closing atomic.Int64
	var all []*shares
	for range stores {
		s := newShares("stuck")
		s.Counters = outage.New(func(string) outage.Remote { return stuck{closing: &closing} }, outage.Options{})
		s.Start()
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	eventually(t, "the stores to be closing", func() bool { return closing.Load() == stores })
	start := time.Now()
	closeLeaving(t.Context(), 100*time.Millisecond)
	if d := time.Since(start); d > flushMost/2 {
		t.Errorf("took %s", d)
	}
	for _, s := range all {
		<-s.gone
	}
}

// authority writes the certificate of a new one.
func authority(t *testing.T, path string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, &ca, &ca, public, private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherCAAtTheSamePathIsTakenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	key := func() string {
		r := &Redis{TLS: &RedisTLS{CA: path}}
		if err := provision(t, r); err != nil {
			t.Fatal(err)
		}
		return r.Key()
	}
	authority(t, path)
	first := key()
	if again := key(); again != first {
		t.Error("the same CA is another store")
	}
	authority(t, path)
	if other := key(); other == first {
		t.Error("another CA is the same store")
	}
}

// Another timeout makes another store, which must not grant in an outage what the one
// before knows to be used up.
func TestOtherOptionsInAnOutageKeepTheCount(t *testing.T) {
	server := redistest.Start(t)
	persist, err := json.Marshal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := `,"persist":` + string(persist)
	a := mustRun(t, redisConfig(t, server.Addr(), dir))
	a.Counters().Settle(reserveOne(t, a), []int64{600})
	eventually(t, "the call to be counted in redis", func() bool {
		s := a.Counters().(*shares).Status()
		return !s.Open && s.Pending == 0 && usedToday(t, a) == 600
	})
	a.Counters().Settle(reserveOne(t, a), []int64{0}) // which the replica hears the 600 by
	server.Kill()
	b := mustRun(t, redisConfig(t, server.Addr(), dir+`,"timeout":"500ms"`))
	if a.Counters() == b.Counters() {
		t.Fatal("another timeout is the same store")
	}
	r := store.Reservation{
		Entity: store.Entity{Instance: "apps", Consumer: "team-a"}, Known: true, Lease: time.Minute,
		Takes: []store.Take{{Rule: testRules()[0].Store, Limit: 1000, Need: 500, Hold: 500}},
	}
	if k, err := b.Counters().Reserve(t.Context(), &r, make([]store.Result, 1)); k != nil || err != nil {
		t.Errorf("got %v, %v, want a refusal", k, err)
	}
}

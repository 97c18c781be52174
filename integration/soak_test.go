//go:build unix

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

var (
	soakFor  = flag.Duration("soak", 15*time.Second, "how long the soak makes calls")
	soakSeed = flag.Uint64("soakseed", 1, "what the soak draws its calls and faults from")
)

const (
	// soakDrain is far longer than the provider needs for what it completes in time.
	soakDrain = 6 * time.Second
	// soakClients call each replica at one time.
	soakClients = 6
)

// soak is two replicas under calls of all kinds, with a Redis that fails.
type soak struct {
	t        *testing.T
	fleet    *fleet
	provider *httptest.Server
	replicas []*replica
	proxies  []*redistest.Proxy
	callers  []*soakCaller
	ledger   ledger
	plans    sync.Map // by id
	mu       sync.Mutex
	calls    atomic.Int64
	refused  atomic.Int64
	reloads  atomic.Int64
}

// soakCaller is an application and its key.
type soakCaller struct{ key, application string }

// TestCountersAreWhatWasServed is the soak: whatever clients, configs and Redis do, the
// counters of all replicas are what the provider has served, to the token and the
// picodollar.
//
// Redis keeps each write before it answers. One that does not has lost charges when it
// is killed, and nobody could say which.
func TestCountersAreWhatWasServed(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	t.Logf("seed %d", *soakSeed)
	s.phase(*soakSeed, min(*soakFor, 5*time.Second))
	before := s.vitals()
	s.phase(*soakSeed+1, *soakFor)
	t.Logf("%d calls, %d refused, %d reloads", s.calls.Load(), s.refused.Load(), s.reloads.Load())
	s.recovers(before)
}

func newSoak(t *testing.T) *soak {
	s := &soak{
		t: t, ledger: ledger{counts: make(map[counter]int64)},
		callers: []*soakCaller{{keyA, "app-a"}, {keyB, "app-b"}, {keyUnbound, "default"}},
	}
	s.provider = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.provider.Close)
	server := redistest.Start(t, redistest.Persistent())
	s.fleet = &fleet{
		t: t, up: &upstream{addr: strings.TrimPrefix(s.provider.URL, "http://")}, server: server,
		meter: fmt.Sprintf("drain %s\n\t\t\tlease 5s", soakDrain),
	}
	for i := range 2 {
		s.proxies = append(s.proxies, redistest.NewProxy(t, server, *soakSeed+uint64(i)))
		s.fleet.redis, s.fleet.store, s.fleet.limits = s.config(i, 0)
		r := s.fleet.run(t.TempDir())
		// a reload closes connections that are idle, and a call may just begin on one
		r.client.Transport.(*http.Transport).DisableKeepAlives = true
		s.replicas = append(s.replicas, r)
	}
	return s
}

// config is what a replica's configs differ in. Another timeout is another connection.
func (s *soak) config(replica, reload int) (redis, store, limits string) {
	timeout := []string{"250ms", "250ms", "250ms", "350ms"}[reload%4]
	return s.proxies[replica].Addr(), "timeout " + timeout, strings.ReplaceAll(soakLimits, "{n}", fmt.Sprint(1_000_000_000_000+reload))
}

// phase makes calls for a while, and then compares the counters with the ledger.
func (s *soak) phase(seed uint64, long time.Duration) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), long)
	defer stop()
	var wg sync.WaitGroup
	for i, r := range s.replicas {
		for j := range soakClients {
			wg.Go(func() { s.client(ctx, r, rand.New(rand.NewPCG(seed, uint64(i*soakClients+j)))) })
		}
	}
	wg.Go(func() { s.reload(ctx, rand.New(rand.NewPCG(seed, 1000))) })
	s.harm(ctx, rand.New(rand.NewPCG(seed, 1001)))
	wg.Wait()

	for _, r := range s.replicas {
		r.healed()
	}
	want := s.ledger.copy()
	for i, r := range s.replicas {
		var wrong []string
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got, held := r.lasting()
			// a replica tells of a model once it has had a call of it
			other, _ := s.replicas[1-i].lasting()
			for at, n := range other {
				if _, met := got[at]; !met && at.model != "" {
					got[at] = n
				}
			}
			wrong = differences(got, want)
			if len(wrong) == 0 && !held {
				break
			}
			if time.Now().After(deadline) {
				s.complaints()
				s.t.Fatalf("replica %d, after %d calls (held: %t):\n%s", i, s.calls.Load(), held, strings.Join(wrong, "\n"))
			}
		}
	}
}

// complaints shows what the replicas say that may be wrong.
func (s *soak) complaints() {
	s.t.Helper()
	for i, r := range s.replicas {
		for line := range strings.Lines(r.process.out.String()) {
			if strings.Contains(line, `"level":"error"`) {
				s.t.Logf("replica %d: %s", i, strings.TrimSpace(line))
			}
		}
	}
}

// client makes calls one after the other.
func (s *soak) client(ctx context.Context, r *replica, random *rand.Rand) {
	for ctx.Err() == nil {
		p := newPlan(random, fmt.Sprint(s.calls.Add(1)), s.callers)
		s.plans.Store(p.id, p)
		s.call(r, p)
		s.plans.Delete(p.id)
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
	}
}

// call makes a call, and leaves where that is the plan.
func (s *soak) call(r *replica, p *plan) {
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	type end struct {
		status int
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		status, err := s.send(ctx, r, p)
		ended <- end{status, err}
	}()
	leaves := map[ending]chan struct{}{leftEarly: p.arrived, left: p.paused, leftForLonger: p.paused}[p.ending]
	var e end
	select {
	case <-leaves:
		leave()
		e = <-ended
		close(p.gone)
		if e.err == nil {
			s.t.Errorf("call %s was answered with %d though its client had gone", p.id, e.status)
		}
		return
	case e = <-ended:
	}
	switch {
	case p.tight && e.status == http.StatusTooManyRequests:
		s.refused.Add(1)
		if s.arrives(p) > 1 {
			s.t.Errorf("call %s was refused, and went to the provider", p.id)
		}
	case p.ending == whole && e.err == nil && e.status == http.StatusOK:
	case p.ending == failed && e.err == nil && e.status == http.StatusInternalServerError:
	case p.ending == broken && (e.err != nil || e.status == http.StatusBadGateway):
	default:
		s.t.Errorf("call %s, %+v: %d %v", p.id, p, e.status, e.err)
	}
}

// arrives counts the arrivals of a call.
func (s *soak) arrives(p *plan) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.arrivals++
	return p.arrivals
}

// send sends the request of a plan and reads the answer to its end. A connection that
// was not accepted when a reload closed its listener is reset: nobody has seen the call.
func (s *soak) send(ctx context.Context, r *replica, p *plan) (status int, err error) {
	for range 20 {
		var resp *http.Response
		if resp, err = s.request(ctx, r, p); err == nil {
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it has been read
			if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests && p.ending != failed {
				err = fmt.Errorf("%s", text)
			}
			return resp.StatusCode, err
		}
		select {
		case <-p.arrived:
			return 0, err
		default:
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	return 0, err
}

func (s *soak) request(ctx context.Context, r *replica, p *plan) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.addr+p.api.path, strings.NewReader(p.body()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.caller.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Call", p.id)
	if p.tight {
		req.Header.Set("X-Tight", "1")
	}
	return r.client.Do(req)
}

// reload gives replicas other configs, one of which is refused now and then.
func (s *soak) reload(ctx context.Context, random *rand.Rand) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second + time.Duration(random.IntN(2000))*time.Millisecond):
		}
		i := random.IntN(len(s.replicas))
		f, r, want := *s.fleet, s.replicas[i], http.StatusOK
		f.redis, f.store, f.limits = s.config(i, n)
		if n%5 == 0 {
			f.limits, want = "respond /early 200\nroute {\nrespond ok\n"+f.limits+"\n}", http.StatusBadRequest
		}
		if status, text, err := r.load(f.caddyfile(r.addr, r.admin)); err != nil || status != want {
			s.t.Errorf("reload %d: %d %v: %s", n, status, err, text)
		}
		s.reloads.Add(1)
	}
}

// load gives a replica another config.
func (r *replica) load(caddyfile string) (status int, text string, err error) {
	resp, err := adminClient(r.admin).Post("http://localhost/load", "text/caddyfile", strings.NewReader(caddyfile))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

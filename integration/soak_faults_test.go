//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// harm does to Redis, and to the ways to it, what happens to them, one after the other,
// and leaves them whole.
func (s *soak) harm(ctx context.Context, random *rand.Rand) {
	s.t.Helper()
	server := s.fleet.server
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	while := func(f redistest.Faults) {
		p := s.proxies[random.IntN(len(s.proxies))]
		p.Set(f)
		pause(500*time.Millisecond + time.Duration(random.IntN(1500))*time.Millisecond)
		p.Set(redistest.Faults{})
	}
	for n := 0; ctx.Err() == nil; n++ {
		switch n % 6 {
		case 0:
			server.Restart()
		case 1:
			while(redistest.Faults{Requests: 0.1, Replies: 0.3})
		case 2:
			server.Kill()
			pause(time.Duration(random.IntN(3000)) * time.Millisecond)
			server.Restart()
		case 3:
			while(redistest.Faults{Requests: 0.1, Replies: 0.3, Hang: true})
		case 4:
			server.Stop()
			pause(time.Duration(200+random.IntN(2000)) * time.Millisecond)
			server.Continue()
		case 5:
			while(redistest.Faults{Partition: true})
		}
		pause(time.Duration(500+random.IntN(1500)) * time.Millisecond)
	}
}

// vital is what must not grow with the calls that a replica has served.
type vital struct {
	goroutines int
	heap       int64 // bytes in use after a collection
}

// vitals are those of the replicas, without connections to the provider that are idle.
func (s *soak) vitals() []vital {
	s.t.Helper()
	s.provider.Config.SetKeepAlivesEnabled(false)
	defer s.provider.Config.SetKeepAlivesEnabled(true)
	all := make([]vital, len(s.replicas))
	for i, r := range s.replicas {
		s.get(r, "/debug/pprof/heap?gc=1")
		total := regexp.MustCompile(`total (\d+)`).FindSubmatch(s.get(r, "/debug/pprof/goroutine?debug=1"))
		var vars struct {
			Memstats struct{ HeapAlloc int64 }
		}
		if err := json.Unmarshal(s.get(r, "/debug/vars"), &vars); err != nil || total == nil {
			s.t.Fatalf("replica %d: %v, goroutines %q", i, err, total)
		}
		n, err := strconv.Atoi(string(total[1]))
		if err != nil {
			s.t.Fatal(err)
		}
		all[i] = vital{n, vars.Memstats.HeapAlloc}
	}
	return all
}

// get reads a page of the admin endpoint.
func (s *soak) get(r *replica, path string) []byte {
	s.t.Helper()
	resp, err := adminClient(r.admin).Get("http://localhost" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
	}
	return body
}

// recovers waits until the replicas are as they were, but for what caches may keep.
func (s *soak) recovers(before []vital) {
	s.t.Helper()
	const (
		goroutines = 8
		heap       = 8 << 20
	)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(500 * time.Millisecond) {
		now, grown := s.vitals(), false
		for i := range now {
			grown = grown || now[i].goroutines > before[i].goroutines+goroutines || now[i].heap > before[i].heap+heap
		}
		if !grown {
			s.t.Logf("goroutines and bytes in use, before %v and after %v", before, now)
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("goroutines and bytes in use were %v, and are %v", before, now)
		}
	}
}

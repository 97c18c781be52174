package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/bench/provider"
)

// serve runs a server until the test ends. Its clock of processor time stands still.
func serve(t *testing.T, h http.Handler, rq *Request) *Server {
	t.Helper()
	srv := httptest.NewServer(h)
	s := &Server{Addr: srv.Listener.Addr().String(), Request: rq, CPU: func() (time.Duration, error) { return time.Second, nil }}
	t.Cleanup(func() {
		s.Close()
		srv.Close()
	})
	return s
}

func TestAnswersAreReadWhole(t *testing.T) {
	plain := NewRequest("/", []string{provider.SizeHeader + ": 20000"}, []byte(`{"model":"m"}`), false)
	stream := NewRequest("/", []string{provider.EventsHeader + ": 50", provider.PaceHeader + ": 1ms"}, []byte(`{"model":"m","stream":true}`), true)
	for _, tc := range []struct {
		name   string
		rq     *Request
		events int64 // of each call
	}{
		{"an answer with a length", plain, 0},
		{"a stream", stream, 50 + 2}, // the end, and the mark of the end
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := serve(t, new(provider.Provider), tc.rq), serve(t, new(provider.Provider), tc.rq)
			l := &Load{Workers: 3, Pairs: 2} // a call of each worker in each turn
			r, err := l.Compare(a, b)
			if err != nil {
				t.Fatal(err)
			}
			for _, side := range []Side{r.A, r.B} {
				if side.Calls != 6 || side.Events != 6*tc.events {
					t.Errorf("got %d calls and %d events, want 6 and %d", side.Calls, side.Events, 6*tc.events)
				}
			}
		})
	}
}

func TestWrongAnswersEndTheRun(t *testing.T) {
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	for _, tc := range []struct {
		name   string
		h      http.Handler
		stream bool
	}{
		{"refused", answer(http.StatusTooManyRequests, "{}"), false},
		{"cut", answer(http.StatusOK, `{"model":`), false},
		{"a stream without its end", answer(http.StatusOK, "data: {}\n\n"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, tc.h, NewRequest("/", nil, nil, tc.stream))
			if err := (&Load{Workers: 1}).Warm(s, 0); err == nil {
				t.Error("a wrong answer passes")
			}
		})
	}
}

func TestConsumersTakeTurns(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string]int)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Header.Get("Authorization")]++
		_, _ = w.Write([]byte("{}"))
	})
	const consumers = 7
	s := serve(t, h, NewRequest("/", []string{"Authorization: Bearer sk-" + ConsumerZero}, nil, false))
	l := &Load{Workers: consumers, Consumers: consumers}
	for range 3 {
		if err := l.Warm(s, 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != consumers {
		t.Errorf("got calls of %d consumers, want %d: %v", len(seen), consumers, seen)
	}
	for key, n := range seen {
		if n != 3 || !strings.HasPrefix(key, "Bearer sk-000000") {
			t.Errorf("%q called %d times, want 3", key, n)
		}
	}
}

// Calls of an open loop are timed from when they were due: one that comes late because
// the one before it took long has waited.
func TestAnOpenLoopCountsWaiting(t *testing.T) {
	const stall = 50 * time.Millisecond
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(stall)
		_, _ = w.Write([]byte("{}"))
	})
	s := serve(t, h, NewRequest("/", nil, nil, false))
	l := &Load{Workers: 1, Rate: 1000, Slice: 4 * time.Millisecond}
	turn := l.turn(s)
	if turn.err != nil {
		t.Fatal(turn.err)
	}
	if n := len(turn.times); n < 2 || turn.times[n-1] < stall+stall/2 {
		t.Errorf("got %v, of which the later ones waited for those before", turn.times)
	}
}

func TestRatiosAreOfNeighbours(t *testing.T) {
	// the machine slows down from turn to turn, and a costs a tenth more all along
	var a, b []slice
	for i := range 11 {
		cost := time.Duration(1000 * (i + 1))
		a = append(a, slice{calls: 10, cpu: 11 * cost, took: time.Second, times: []time.Duration{cost}})
		b = append(b, slice{calls: 10, cpu: 10 * cost, took: time.Second, times: []time.Duration{cost}})
	}
	r := newResult(a, b)
	if r.CPU != (Ratio{1.1, 1.1, 1.1}) || r.P50 != (Ratio{1, 1, 1}) || r.Rate != (Ratio{1, 1, 1}) {
		t.Errorf("got %+v", r)
	}
	if r.Added != 600 || r.A.PerCall() != 6600 {
		t.Errorf("got %v more than %v", r.Added, r.B.PerCall())
	}
}

func TestQuantile(t *testing.T) {
	times := make([]time.Duration, 100)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	if p50, p99 := quantile(times, 0.5), quantile(times, 0.99); p50 != 50 || p99 != 99 {
		t.Errorf("got %v and %v, want 50 and 99", p50, p99)
	}
	if q := quantile(nil, 0.5); q != 0 {
		t.Errorf("got %v of nothing", q)
	}
}

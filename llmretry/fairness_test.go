package llmretry

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"pgregory.net/rapid"
)

// poisoned is an upstream that fails with one consumer, and with all while it is down.
type poisoned struct {
	script
	down bool
	asks string // the application that calls
	bad  string
}

func (p *poisoned) serve(w http.ResponseWriter, r *http.Request) error {
	p.calls++
	if p.down || p.asks == p.bad {
		return replies(500, "poison")(w, r)
	}
	return replies(200, sixty)(w, r)
}

func (p *poisoned) call(t *testing.T, h *Handler, app string) result {
	p.asks = app
	return do(h, p.serve, from(t, app))
}

func TestNoConsumerOpensTheBreakerOfOthers(t *testing.T) {
	for _, failures := range []int{1, 2, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, &Handler{Attempts: 1, Breaker: &Breaker{
				Failures: failures, Per: caddy.Duration(time.Minute), Open: caddy.Duration(time.Second),
			}})
			up := &poisoned{bad: "evil"}
			refused := 0
			for range 300 { // four and a half minutes
				if res := up.call(t, h, "evil"); res.Code == 503 {
					refused++
				}
				if res := up.call(t, h, "good"); res.Code != 200 {
					t.Fatalf("breaker of %d: another consumer gets %d", failures, res.Code)
				}
				time.Sleep(900 * time.Millisecond)
			}
			if refused == 0 {
				t.Errorf("breaker of %d: who fails all the time is never stopped", failures)
			}
		})
	}
}

func TestTwoConsumersOpenTheBreakerOfARoute(t *testing.T) {
	for _, failures := range []int{1, 2, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, &Handler{Attempts: 1, Breaker: &Breaker{Failures: failures, Per: caddy.Duration(time.Minute)}})
			up := &poisoned{down: true}
			for range failures {
				up.call(t, h, "a")
				up.call(t, h, "b")
			}
			if res := up.call(t, h, "c"); res.Code != 503 {
				t.Errorf("breaker of %d: a third consumer gets %d", failures, res.Code)
			}
		})
	}
}

func TestWhoseTrialFailsLeavesTheNextOneToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{Attempts: 1, Breaker: &Breaker{
			Failures: 2, Per: caddy.Duration(time.Minute), Open: caddy.Duration(10 * time.Second),
		}})
		up := &poisoned{down: true, bad: "evil"}
		up.call(t, h, "evil")
		up.call(t, h, "good")
		if res := up.call(t, h, "good"); res.Code != 503 {
			t.Fatalf("the breaker is closed: %d", res.Code)
		}
		up.down = false
		time.Sleep(10*time.Second + 1)
		up.call(t, h, "evil") // its trial fails
		if res := up.call(t, h, "good"); res.Code != 503 {
			t.Fatalf("after a trial that failed: %d", res.Code)
		}
		time.Sleep(10*time.Second + 1)
		before := up.calls
		if res := up.call(t, h, "evil"); res.Code != 503 || up.calls != before {
			t.Errorf("it gets the next trial, too: %d", res.Code)
		}
		if res := up.call(t, h, "good"); res.Code != 200 {
			t.Errorf("the other one gets %d", res.Code)
		}
	})
}

func TestTrialIsNotKeptForOneWhoDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{Attempts: 1, Breaker: &Breaker{
			Failures: 2, Per: caddy.Duration(time.Minute), Open: caddy.Duration(10 * time.Second),
		}})
		up := &poisoned{down: true}
		up.call(t, h, "a")
		up.call(t, h, "b")
		time.Sleep(10*time.Second + 1)
		up.call(t, h, "a") // its trial fails
		up.call(t, h, "b") // is turned away, and gone
		up.down = false
		time.Sleep(20*time.Second + 1)
		if res := up.call(t, h, "a"); res.Code != 200 {
			t.Errorf("got %d", res.Code)
		}
	})
}

func TestNoConsumerSpendsTheRetriesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{Attempts: 2, MaxWait: caddy.Duration(time.Millisecond)})
		down := &script{steps: steps(replies(503, "down"))}
		for range 300 {
			do(h, down.serve, from(t, "evil"))
			time.Sleep(100 * time.Millisecond)
		}
		for i := range 5 {
			up := &script{steps: steps(replies(503, "down"), replies(200, sixty))}
			if res := do(h, up.serve, from(t, "good")); res.Code != 200 {
				t.Errorf("call %d of another consumer gets %d", i, res.Code)
			}
		}
	})
}

// TestCountedIsBoundedInAnyTime holds what counts of a consumer to its part in every time
// that is as long as a breaker looks back.
func TestCountedIsBoundedInAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const per = time.Minute
		most := rapid.IntRange(1, 20).Draw(t, "most")
		c := counted{per: per}
		now := time.Unix(1_700_000_000, 0)
		var times []time.Time
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			if c.add(most, now) {
				times = append(times, now)
			}
		}
		for i, first := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Sub(first) < per {
					n++
				}
			}
			if n > most {
				t.Fatalf("%d count from %s on, of %d", n, first, most)
			}
		}
		if len(times) == 0 {
			t.Fatal("nothing counts")
		}
	})
}

package meter

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

func TestDrainsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 50
		m := New()
		l := newLimiter(m, "l")
		l.ended = make(chan struct{}, drainsMost+more)
		begin := time.Now()
		took := make(chan time.Duration, drainsMost+more)
		for range drainsMost + more {
			go drained(t, l, "", begin, took)
			synctest.Wait()
		}
		atOnce := 0
		for range drainsMost + more {
			switch d := <-took; d {
			case 0:
				atOnce++
			case DefaultDrain:
			default:
				t.Errorf("ended after %v", d)
			}
		}
		if atOnce != more {
			t.Errorf("%d calls ended at once", atOnce)
		}
		for _, o := range l.outcome {
			if o.Source != SourceEstimated {
				t.Fatalf("got %+v", o)
			}
		}
		ended(t, m)
	})
}

// drained serves a call of a key, whose client leaves at once, and tells when it has ended.
func drained(t *testing.T, l *limiter, key string, begin time.Time, took chan<- time.Duration) {
	r, leave := leaving(t, chatPath, plainBody)
	caddyhttp.SetVar(r.Context(), VarKeyID, key)
	next := handler(func(_ http.ResponseWriter, r *http.Request) error {
		leave()
		<-r.Context().Done()
		return r.Context().Err()
	})
	_ = serve(httptest.NewRecorder(), r, next, l)
	took <- time.Since(begin)
}

func TestOneKeyDoesNotTakeAllDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 20
		m := New()
		l := newLimiter(m, "l")
		l.ended = make(chan struct{}, 2*drainsMost)
		begin := time.Now()
		took := map[string]chan time.Duration{"greedy": make(chan time.Duration, drainsMost), "other": make(chan time.Duration, more)}
		for range drainsShare + more {
			go drained(t, l, "greedy", begin, took["greedy"])
		}
		synctest.Wait()
		for range more {
			go drained(t, l, "other", begin, took["other"])
		}
		for key, want := range map[string]int{"greedy": more, "other": 0} {
			atOnce := 0
			for range cap(took[key]) {
				synctest.Wait()
				if len(took[key]) == 0 {
					break
				}
				if <-took[key] == 0 {
					atOnce++
				}
			}
			if atOnce != want {
				t.Errorf("%s: %d calls ended at once, want %d", key, atOnce, want)
			}
		}
		time.Sleep(2 * DefaultDrain)
		synctest.Wait()
		ended(t, m)
	})
}

func TestPlacesToDrainAreGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d drains
		held := make(map[string]int)
		all := 0
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				who := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "who")
				n := rapid.IntRange(1, drainsMost).Draw(t, "times")
				for range n {
					if d.take(who) {
						held[who]++
						all++
					}
				}
			},
			"release": func(t *rapid.T) {
				who := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "who")
				for range rapid.IntRange(0, held[who]).Draw(t, "times") {
					d.release(who)
					held[who]--
					all--
				}
			},
			"": func(t *rapid.T) {
				if d.all != all || all > drainsMost || held["a"] > drainsShare || held["b"] > drainsShare {
					t.Fatalf("%d are taken, %v are held", d.all, held)
				}
				if all == 0 && len(d.by) > 0 {
					t.Fatalf("%v is left", d.by)
				}
			},
		})
	})
}

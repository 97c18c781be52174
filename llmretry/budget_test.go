package llmretry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func TestOneConsumerTakesHalfOfWhatIsLeftAtMost(t *testing.T) {
	for _, saved := range []float64{2, 4, budgetFirst, 50, budgetMost} {
		h, now := newHandler(t, new(Handler)), time.Now()
		h.budget.left, h.budget.at = saved, now
		evil := &tries{h: h, caller: h.consumers.get("evil", now)}
		n := 0.0
		for evil.takes(now) {
			n++
		}
		if n == 0 || n > saved/2 || n > budgetSaved {
			t.Errorf("of %v it takes %v", saved, n)
		}
		good := &tries{h: h, caller: h.consumers.get("good", now)}
		if !good.takes(now) {
			t.Errorf("of %v another one gets none", saved)
		}
	}
}

func TestRetryThatIsNotMadeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{MaxWait: caddy.Duration(time.Minute)})
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			do(h, replies(429, busy, "Retry-After", "30"), request(ctx, chatBody))
			cancel()
		}
		if left := h.budget.left; left < budgetFirst {
			t.Errorf("%v are left", left)
		}
	})
}

func TestFreeCallsPayForNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, new(Handler))
		for range 100 {
			r := request(t.Context(), `{"input":"x"}`)
			r.URL.Path = "/v1/moderations"
			do(h, replies(200, "{}"), r)
		}
		if left := h.budget.left; left != budgetFirst {
			t.Errorf("%v are left", left)
		}
	})
}

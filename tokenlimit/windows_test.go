package tokenlimit_test

import (
	"testing"
	"time"
)

// Every kind of window counts beside the others, and each call raises all by as much.
func TestAllKindsOfWindowsAtOnce(t *testing.T) {
	rules := []string{
		"tokens per minute", "tokens per hour", "tokens per day", "tokens per week", "tokens per month",
		"tokens per 90m", "tokens per 30d", "tokens per rolling 1h", "tokens per rolling 7d",
	}
	lines := "timezone America/New_York\nlimit 500 tokens per hour burst 9k\n"
	for _, rule := range rules {
		lines += "limit 9k " + rule + "\n"
	}
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, lines)
		if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 10*time.Second {
			time.Sleep(left) // no minute may end within the test
		}
		for _, app := range []string{"alice", "alice", "bob"} {
			want(t, q.ask(app, "m", ""), 200)
		}
		for _, rule := range rules {
			q.uses("alice", rule, 30)
			q.uses("bob", rule, 15)
		}
		// the bucket gives a token back in about seven seconds
		if used := q.counter("alice", "tokens per hour burst").Used; used < 27 || used > 30 {
			t.Errorf("the bucket has %v used", used)
		}

		zone, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range q.rows("alice") {
			at, end := r.WindowStart.In(zone), r.ResetsAt.In(zone)
			midnight := at.Hour() == 0 && at.Minute() == 0 && end.Hour() == 0 && end.Minute() == 0
			ok := true
			switch r.Rule {
			case "tokens per minute":
				ok = at.Second() == 0 && end.Sub(at) == time.Minute
			case "tokens per day":
				ok = midnight && end.Equal(at.AddDate(0, 0, 1))
			case "tokens per week":
				ok = midnight && at.Weekday() == time.Monday && end.Equal(at.AddDate(0, 0, 7))
			case "tokens per month":
				ok = midnight && at.Day() == 1 && end.Equal(at.AddDate(0, 1, 0))
			case "tokens per 90m":
				ok = at.Unix()%5400 == 0 && end.Sub(at) == 90*time.Minute
			}
			if !ok {
				t.Errorf("%s is from %s to %s", r.Rule, at, end)
			}
		}
	})
}

// A bucket that was overdrawn admits again when the debt is paid, and says when.
func TestABucketInDebtSaysWhenItIsPaid(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "mode charge_after\nlimit 60 tokens per hour burst 20")
		answer = servedBy("m", 100, 9) // 90 more than there are
		before := time.Now()
		want(t, q.ask("alice", "m", ""), 200)
		w := q.ask("alice", "m", "")
		want(t, w, 429)
		has(t, w, "X-RateLimit-Ban-Level", "hour", "X-RateLimit-Window", "hour burst", "X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "0")
		waits(t, w, before.Add(90*time.Minute), before)
		want(t, q.ask("bob", "m", ""), 200)

		// the burst is there at once, the amount comes back with time
		q = start(t, "limit 3600 requests per hour burst 3")
		for _, status := range []int{200, 200, 200, 429} {
			want(t, q.ask("alice", "m", ""), status)
		}
		for deadline := time.Now().Add(time.Minute); q.ask("alice", "m", "").Code != 200; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing comes back")
			}
		}
	})
}

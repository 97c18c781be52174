//go:build unix

package integration

import (
	"fmt"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// patientStore is a store whose calls wait for a busy machine.
func patientStore(t testing.TB) string {
	return redisStore(redistest.Start(t).Addr(), "timeout 10s\npersist off")
}

func TestBudgetsOfRedis(t *testing.T) { testBudgets(t, patientStore(t)) }

func TestStrictBudgetsOfRedis(t *testing.T) { testStrictBudgets(t, patientStore(t)) }

func TestBudgetIsSpentAcrossReplicas(t *testing.T) {
	f := newFleet(t, nil, "")
	for _, mode := range []string{"charge_after", "reserve", "strict"} {
		f.limits += fmt.Sprintf(`
	@%[1]s header X-Mode %[1]s
	cost_limit @%[1]s %[1]s {
		consumer_based
		mode %[1]s
		limit $0.20 per hour
	}`, mode)
	}
	f.limits += "\n" + dime
	f.store = "timeout 10s"
	replicas := f.replicas(2)
	const body = `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`
	for _, mode := range []string{"charge_after", "reserve", "strict"} {
		spent := func(r *replica, want dollars) {
			t.Helper()
			patiently(t, fmt.Sprintf("%+v spent under %s", want, mode), func() bool {
				var rows []struct{ dollars }
				r.adminGet("/llm/usage?consumer=app-a&instance="+mode, &rows)
				return len(rows) == 1 && rows[0].dollars == want
			})
		}
		for i, want := range []int{200, 200, 429, 429} {
			r := replicas[i%2]
			if a := r.call("POST", "/v1/chat/completions", keyA, body, "X-Mode", mode); a.Status != want {
				t.Fatalf("%s: call %d: %d, want %d: %s", mode, i+1, a.Status, want, a.Body)
			}
			other := replicas[(i+1)%2] // it must know before it is asked
			spent(other, []dollars{{"0.20", "0.10", "0", "0.10"}, {"0.20", "0.20", "0", "0"}}[min(i, 1)])
		}
		spent(replicas[0], dollars{"0.20", "0.20", "0", "0"})
		// another application has a budget of its own
		if a := replicas[1].call("POST", "/v1/chat/completions", keyB, body, "X-Mode", mode); a.Status != 200 {
			t.Errorf("%s: application B: %d: %s", mode, a.Status, a.Body)
		}
	}
	if n := f.up.calls(); n != 9 {
		t.Errorf("the upstream was called %d times, want 9", n)
	}
}

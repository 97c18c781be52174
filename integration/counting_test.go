package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var backendAndConsumer = `{site} {` + auth + `
	token_limit {name}-backend {
		limit 1000 tokens per hour
		limit 50 requests per hour
	}
	token_limit {name}-consumer {
		consumer_based
		limit 100 tokens per hour
		limit 10 requests per day
	}
	reverse_proxy {upstream}
}`

func TestBackendAndConsumerCountApart(t *testing.T) {
	g := start(t, newUpstream(t, nil), backendAndConsumer)
	for _, key := range []string{keyA, keyA, keyB} {
		if a := g.chat(key); a.Status != http.StatusOK {
			t.Fatalf("%d: %s", a.Status, a.Body)
		}
	}
	// refused by the consumer's rule: nothing stays charged to the backend
	if a := g.chat(keyA); a.Status != http.StatusTooManyRequests {
		t.Fatalf("third call of A: %d", a.Status)
	}
	for _, tt := range []struct {
		instance, consumer, rule string
		want                     int64
	}{
		{"-backend", "", "tokens per hour", 180},
		{"-backend", "", "requests per hour", 3},
		{"-consumer", "app-a", "tokens per hour", 120},
		{"-consumer", "app-a", "requests per day", 2},
		{"-consumer", "app-b", "tokens per hour", 60},
		{"-consumer", "app-b", "requests per day", 1},
	} {
		if r := g.used(tt.instance, tt.consumer, tt.rule); r.Used != tt.want || r.Reserved != 0 {
			t.Errorf("%s %s %s: used %d, reserved %d; want %d, 0", tt.instance, tt.consumer, tt.rule, r.Used, r.Reserved, tt.want)
		}
	}
}

func TestLimitRaisedByReloadKeepsWhatIsUsed(t *testing.T) {
	up := newUpstream(t, nil)
	site := func(rules string) string {
		return `{site} {` + auth + "\n\ttoken_limit {name} {\n\t\tconsumer_based\n\t\t" + rules + "\n\t}\n\treverse_proxy {upstream}\n}"
	}
	g := start(t, up, site("limit 100 tokens per hour"))
	expect := func(when string, want ...int) {
		t.Helper()
		for i, w := range want {
			if a := g.chat(keyA); a.Status != w {
				t.Fatalf("%s, call %d: %d, want %d", when, i+1, a.Status, w)
			}
		}
	}
	expect("at 100", 200, 200, 429)
	g.reload(up, site("limit 200 tokens per hour"))
	expect("at 200, 120 used", 200, 200, 429)

	// a new rule begins at nothing and the old one forgets nothing
	g.reload(up, site("limit 200 tokens per hour\n\t\tlimit 1 requests per day"))
	expect("with another rule", 429)
	g.reload(up, site("limit 1k tokens per hour\n\t\tlimit 1 requests per day"))
	expect("with room", 200, 429)
	if r := g.used("", "app-a", "tokens per hour"); r.Used != 300 {
		t.Errorf("used %d, want 300", r.Used)
	}

	// a reload that fails changes nothing, and neither does one in vain
	if err := g.tryLoad(up, site("limit 5 bananas per hour")); err == nil || !strings.Contains(err.Error(), "bananas") {
		t.Errorf("a unit that does not exist: %v", err)
	}
	g.reload(up, site("limit 301 tokens per hour"))
	expect("after a failed reload", 200, 429)
}

func TestReloadThatFailsLateChangesNothing(t *testing.T) {
	up := newUpstream(t, nil)
	site := func(tokens, more string) string {
		return `{site} {` + auth + "\n\ttoken_limit {name} {\n\t\tconsumer_based\n\t\tlimit " + tokens + " tokens per hour\n\t}\n\treverse_proxy {upstream}\n}\n" + more
	}
	g := start(t, up, site("100", ""))
	g.chat(keyA)
	// everything is provisioned when the listener of another site cannot be opened
	err := g.tryLoad(up, site("100000", "http://{upstream} {\n\trespond ok\n}"))
	if err == nil {
		t.Fatal("two listeners on one address")
	}
	for i, want := range []int{200, 429} {
		if a := g.chat(keyA); a.Status != want {
			t.Errorf("call %d: %d, want %d", i+2, a.Status, want)
		}
	}
}

// parallel sends n calls at once and returns how many had each status.
func parallel(g *gateway, n int, key, body string) map[int]int {
	g.t.Helper()
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		gate  = make(chan struct{})
		count = make(map[int]int)
	)
	g.client.Transport.(*http.Transport).MaxIdleConnsPerHost = n
	for range n {
		wg.Go(func() {
			<-gate
			a, err := g.try(context.Background(), "POST", "/v1/chat/completions", key, body)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				g.t.Error(err)
				return
			}
			count[a.Status]++
		})
	}
	close(gate)
	wg.Wait()
	return count
}

func TestStrictIsNeverPassedByParallelCalls(t *testing.T) {
	var most, now atomic.Int64
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		sixtyTokens(w, r)
	})
	g := start(t, up, `{site} {`+auth+`
		token_limit {name}-outer {
			limit 1000 requests per hour
		}
		token_limit {name} {
			consumer_based
			mode strict
			limit 1000 tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	served := 0
	for range 4 {
		count := parallel(g, 64, keyA, `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
		served += count[200]
		if count[200]+count[429] != 64 {
			t.Fatalf("statuses %v", count)
		}
	}
	r := g.used("", "app-a", "tokens per hour")
	if r.Used > 1000 || r.Reserved != 0 || r.Used != int64(served)*60 {
		t.Errorf("served %d calls, used %d, reserved %d; want %d, at most 1000, and 0", served, r.Used, r.Reserved, served*60)
	}
	if served < 10 {
		t.Errorf("only %d calls fit in 1000 tokens", served)
	}
	if up.calls() != served {
		t.Errorf("the upstream served %d calls, clients got %d", up.calls(), served)
	}
	if r := g.used("-outer", "", "requests per hour"); r.Used != int64(served) {
		t.Errorf("the outer limiter counted %d requests, want %d", r.Used, served)
	}
}

func TestReserveIsPassedByNoMoreThanCallsCostBeyondTheirHolds(t *testing.T) {
	const cost, hold = 2000, 8 + 1024 // a call of 2,000 tokens that was expected to use about 1,032
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"chat.completion","model":"m","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":8,"completion_tokens":%d,"total_tokens":%d}}`, cost-8, cost)
	})
	g := start(t, up, `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 20k tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	count := parallel(g, 64, keyA, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	r := g.used("", "app-a", "tokens per hour")
	if r.Used != int64(count[200])*cost || r.Reserved != 0 {
		t.Fatalf("%v: used %d, reserved %d", count, r.Used, r.Reserved)
	}
	if over := r.Used - 20_000; over > cost+int64(count[200])*(cost-hold) {
		t.Errorf("passed by %d with %d calls", over, count[200])
	}
	if count[200] == 64 || count[200] < 10 {
		t.Errorf("%d of 64 calls were admitted", count[200])
	}
}

func TestHugeCapLocksNobodyOutOfASharedCounter(t *testing.T) {
	hold := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Wait"), "yes") {
			<-hold
		}
		sixtyTokens(w, r)
	})
	g := start(t, up, `{site} {`+auth+`
		token_limit {name} {
			limit 1M tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	done := make(chan answer)
	go func() {
		a, _ := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"m","max_tokens":900000000,"messages":[]}`, "X-Wait", "yes")
		done <- a
	}()
	for up.calls() == 0 { // until the greedy call is at work
		if a := g.call("GET", "/v1/models", keyB, ""); a.Status != http.StatusOK {
			t.Fatalf("models: %d", a.Status)
		}
	}
	if a := g.chat(keyB); a.Status != http.StatusOK {
		t.Errorf("application B: %d %s", a.Status, a.Body)
	}
	close(hold)
	if a := <-done; a.Status != http.StatusOK {
		t.Errorf("the greedy call: %d", a.Status)
	}
}

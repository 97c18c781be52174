package tokenlimit_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestConcurrentCallsAreHeldUntilTheyEnd(t *testing.T) {
	g := start(t, "", `token_limit at-work {
		consumer_based
		limit 2 concurrent
		limit 100 requests per day
		limit 10k tokens per day
	}
	test_upstream`)
	depth := 0
	var statuses []int
	answer = func(w http.ResponseWriter, r *http.Request) error {
		if depth++; depth <= 2 {
			statuses = append(statuses, g.chat("shop").Code)
		}
		if depth == 2 {
			c := g.counters("at-work", "shop")
			if c["concurrent"].Reserved != 2 || c["tokens per day"].Reserved != 2*(8+5) {
				t.Errorf("held: %+v", c)
			}
			statuses = append(statuses, g.chat("other").Code)
		}
		return chat(10, 5)(w, r)
	}
	want(t, g.chat("shop"), 200)
	if len(statuses) != 3 || statuses[0] != 429 || statuses[1] != 200 || statuses[2] != 200 {
		t.Errorf("got the statuses %v", statuses)
	}
	want(t, g.chat("shop"), 200)
	g.used("at-work", "shop", "concurrent", 0)
	g.used("at-work", "shop", "requests per day", 3)
	g.used("at-work", "shop", "tokens per day", 45)
}

func TestModesAdmitByTheirRule(t *testing.T) {
	for i, tc := range []struct {
		mode, body string
		limit      int64
		inside     int // the status of a call while this one is at work
	}{
		{"charge_after", question, 20, 200},
		{"reserve", question, 8 + 5, 429},
		{"reserve", question, 8 + 5 + 1, 200},
		{"strict", question, 300, 200},
		{"strict", question, 150, 429},
	} {
		t.Run(tc.mode+" "+strconv.FormatInt(tc.limit, 10), func(t *testing.T) {
			instance := "mode-" + strconv.Itoa(i)
			g := start(t, "", "token_limit "+instance+" {\nconsumer_based\nlimit "+strconv.FormatInt(tc.limit, 10)+" tokens per day\nmode "+tc.mode+"\n}\ntest_upstream")
			inside := 0
			answer = func(w http.ResponseWriter, r *http.Request) error {
				if inside == 0 {
					inside = -1
					inside = g.do("POST", "/v1/chat/completions", tc.body).Code
				}
				return chat(1, 1)(w, r)
			}
			want(t, g.do("POST", "/v1/chat/completions", tc.body), 200)
			if inside != tc.inside {
				t.Errorf("a call meanwhile got %d, want %d", inside, tc.inside)
			}
		})
	}
}

func TestStrictNeverLetsMoreThroughThanThereIs(t *testing.T) {
	const uncapped = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	g := start(t, "", "token_limit strict {\nconsumer_based\nlimit 1k tokens per day\nmode strict\n}\ntest_upstream")
	var seen struct {
		Max int64 `json:"max_completion_tokens"`
	}
	answer = func(w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if int64(len(b)) != r.ContentLength {
			t.Errorf("Content-Length %d of %d bytes", r.ContentLength, len(b))
		}
		if err := json.Unmarshal(b, &seen); err != nil {
			return err
		}
		return chat(10, int(seen.Max))(w, r)
	}
	want(t, g.do("POST", "/v1/chat/completions", uncapped), 200)
	if seen.Max < 800 || seen.Max > 1000 {
		t.Errorf("the cap is %d", seen.Max)
	}
	g.used("strict", "default", "tokens per day", 10+seen.Max)
	want(t, g.do("POST", "/v1/chat/completions", uncapped), 429)

	w := g.do("POST", "/v1/chat/completions", `{"model":"m","max_tokens":5000,"messages":[]}`, "X-App", "shop")
	want(t, w, 400)
	if !strings.Contains(w.Body.String(), "request_too_large") || !strings.Contains(w.Body.String(), "output tokens fits") {
		t.Errorf("got %s", w.Body)
	}
	w = g.do("POST", "/v1/anything", `{"contents":[]}`, "X-App", "shop")
	want(t, w, 400)
	if !strings.Contains(w.Body.String(), "cap on their output") {
		t.Errorf("got %s", w.Body)
	}
	g.used("strict", "shop", "tokens per day", 0)
}

package tokenlimit_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TestQuotasOfModels holds limits by model, window and consumer to what is promised of
// them, over every store.
func TestQuotasOfModels(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		for _, tc := range []struct {
			name string
			run  func(t *testing.T, start starter)
		}{
			{"one config counts each consumer apart", countsConsumersApart},
			{"neither models nor windows share a count", sharesNoCount},
			{"one call raises all its windows by as much", raisesAllWindows},
			{"calendar windows begin with the hour, the day and Monday", beginsWithTheCalendar},
			{"a window that is used up says when it ends, and then is fresh", endsItsBan},
			{"the last call may pass the limit by its own cost, the next is denied", passesByOneCall},
			{"pictures are counted before the call", countsPicturesBefore},
			{"a call that fits in all but one is charged to none", chargesNoneOrAll},
			{"the longest window that is used up is named", namesTheLongest},
			{"a denial says what is used up", saysWhatIsUsedUp},
			{"calls at one time add up to the token", addsUpExactly},
			{"counts outlive a reload", outlivesAReload},
			{"answers tell what is left of the tightest rule that applies", tellsTheTightest},
			{"what becomes of models that are not listed is said", saysWhatIsUnlisted},
			{"streams count by model", countsStreams},
			{"the log and the counter have the same number", agreesWithTheLog},
			{"without a key all share a counter", sharesWithoutAKey},
			{"calls in flight pass the limit by no more than what they hold", holdsInFlight},
		} {
			t.Run(tc.name, func(t *testing.T) { tc.run(t, start) })
		}
	})
}

func countsConsumersApart(t *testing.T, start starter) { // 1
	q := start(t, "model qwen* {\nlimit 20 tokens per day\nlimit 3 requests per day\nper_model\n}")
	for range 2 {
		want(t, q.ask("alice", "qwen-max", ""), 200)
	}
	want(t, q.ask("alice", "qwen-max", ""), 429)
	want(t, q.ask("bob", "qwen-max", ""), 200)
	q.uses("alice", "tokens per day (qwen*) [qwen-max]", 30)
	q.uses("bob", "tokens per day (qwen*) [qwen-max]", 15)
}

func sharesNoCount(t *testing.T, start starter) { // 2
	q := start(t, "model qwen* glm* {\nlimit 15 tokens per hour\nlimit 1k tokens per week\nper_model\n}\nmodel gpt-4o {\nlimit 1k tokens per hour\n}")
	for _, m := range []string{"qwen-max", "qwen-plus", "glm-4", "gpt-4o"} {
		want(t, q.ask("alice", m, ""), 200)
	}
	want(t, q.ask("alice", "qwen-max", ""), 429)
	want(t, q.ask("alice", "gpt-4o", ""), 200)
	for _, m := range []string{"qwen-max", "qwen-plus", "glm-4"} {
		q.uses("alice", "tokens per hour (qwen* glm*) ["+m+"]", 15)
		q.uses("alice", "tokens per week (qwen* glm*) ["+m+"]", 15)
	}
	q.uses("alice", "tokens per hour (gpt-4o)", 30)
	q.uses("alice", "tokens per hour (qwen* glm*) [other]", 0)
}

func raisesAllWindows(t *testing.T, start starter) { // 3
	q := start(t, "model qwen* {\nlimit 1M tokens per hour\nlimit 50M tokens per week\n}\nlimit 100M tokens per month")
	answer = servedBy("qwen-max", 7, 3)
	want(t, q.ask("alice", "qwen-max", ""), 200)
	want(t, q.ask("bob", "qwen-max", ""), 200)
	for _, rule := range []string{"tokens per hour (qwen*)", "tokens per week (qwen*)", "tokens per month"} {
		q.uses("alice", rule, 10)
		q.uses("bob", rule, 10)
	}
}

func beginsWithTheCalendar(t *testing.T, start starter) { // 4
	q := start(t, "timezone Asia/Kathmandu\nmodel * {\nlimit 9k tokens per hour\nlimit 9k tokens per day\nlimit 9k tokens per week\n}")
	zone, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	want(t, q.ask("alice", "m", ""), 200)
	for _, r := range q.rows("alice") {
		at := r.WindowStart.In(zone)
		ok := at.Minute() == 0 && at.Second() == 0 && at.Nanosecond() == 0
		switch r.Rule {
		case "tokens per hour (*)":
			ok = ok && r.ResetsAt.Sub(at) == time.Hour
		case "tokens per day (*)":
			ok = ok && at.Hour() == 0 && r.ResetsAt.Sub(at) == 24*time.Hour
		case "tokens per week (*)":
			ok = ok && at.Hour() == 0 && at.Weekday() == time.Monday && r.ResetsAt.Sub(at) == 7*24*time.Hour
		}
		if !ok {
			t.Errorf("%s is from %s to %s", r.Rule, at, r.ResetsAt.In(zone))
		}
	}
}

func endsItsBan(t *testing.T, start starter) { // 5
	q := start(t, "model ocr* {\nlimit 50 images per hour\n}\nmodel short {\nlimit 2 images per 2s\n}")
	before := time.Now()
	want(t, q.send("alice", "ocr-1", 50), 200)
	w := q.send("alice", "ocr-1", 1)
	if until := before.Truncate(time.Hour).Add(time.Hour); time.Now().Before(until) {
		want(t, w, 429)
		waits(t, w, until, before)
		has(t, w, "X-RateLimit-Ban-Level", "hourly")
	}
	want(t, q.send("bob", "ocr-1", 50), 200)

	admitted := func() bool { return q.send("alice", "short", 2).Code == 200 }
	for deadline := time.Now().Add(time.Minute); !admitted(); {
		if time.Now().After(deadline) {
			t.Fatal("the ban does not end")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for deadline := time.Now().Add(time.Minute); !admitted(); {
		if time.Now().After(deadline) {
			t.Fatal("the second ban does not end")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func passesByOneCall(t *testing.T, start starter) { // 7, 30
	q := start(t, "mode charge_after\nmodel * {\nlimit 16 tokens per day\n}")
	want(t, q.ask("alice", "m", ""), 200)
	answer = servedBy("m", 10_000, 5)
	want(t, q.ask("alice", "m", ""), 200)
	want(t, q.ask("alice", "m", ""), 429)
	q.uses("alice", "tokens per day (*)", 15+10_005)
	want(t, q.ask("bob", "m", ""), 200)
}

func countsPicturesBefore(t *testing.T, start starter) { // 8
	q := start(t, "model ocr* {\nlimit 3 images per day\n}")
	called := 0
	answer = func(w http.ResponseWriter, r *http.Request) error {
		called++
		return chat(10, 5)(w, r)
	}
	want(t, q.send("alice", "ocr-1", 2), 200)
	w := q.send("alice", "ocr-1", 2)
	want(t, w, 429)
	has(t, w, "X-RateLimit-Unit", "images")
	if called != 1 {
		t.Errorf("the upstream was called %d times", called)
	}
	want(t, q.send("alice", "ocr-1", 1), 200)
	want(t, q.ask("alice", "ocr-1", ""), 200) // it has no picture
	want(t, q.send("bob", "ocr-1", 3), 200)
	q.uses("alice", "images per day (ocr*)", 3)

	// more than fits into any window will never fit
	w = q.send("carol", "ocr-1", 4)
	want(t, w, 400)
	if code(w) != "request_too_large" {
		t.Errorf("got %s", w.Body)
	}
	// what failed is given back
	answer = reply(http.StatusInternalServerError, `{"error":{"message":"no"}}`)
	want(t, q.send("carol", "ocr-1", 3), 500)
	q.uses("carol", "images per day (ocr*)", 0)
}

func chargesNoneOrAll(t *testing.T, start starter) { // 10
	q := start(t, "model vl* {\nlimit 1k tokens per day\nlimit 5 images per day\nlimit 60 audio_seconds per day\nlimit 60 video_seconds per day\nlimit 9 requests per day\n}")
	want(t, q.send("alice", "vl", 4), 200)
	rules := map[string]float64{
		"tokens per day (vl*)": 15, "images per day (vl*)": 4, "requests per day (vl*)": 1,
		"audio_seconds per day (vl*)": 0, "video_seconds per day (vl*)": 0,
	}
	for rule, used := range rules {
		q.uses("alice", rule, used)
	}
	want(t, q.send("alice", "vl", 2), 429)
	for _, header := range []string{"X-Audio-Duration", "X-Video-Duration"} {
		want(t, q.ask("alice", "vl", "", header, "60.5"), 400)
		want(t, q.ask("alice", "vl", "", header, "-1"), 400)
	}
	for rule, used := range rules {
		q.uses("alice", rule, used)
	}
	want(t, q.ask("alice", "vl", "", "X-Audio-Duration", "59.5", "X-Video-Duration", "1"), 200)
	w := q.ask("alice", "vl", "", "X-Audio-Duration", "1")
	want(t, w, 429)
	has(t, w, "X-RateLimit-Unit", "audio_seconds", "X-RateLimit-Limit", "60")
	q.uses("alice", "audio_seconds per day (vl*)", 59.5)
	q.uses("alice", "video_seconds per day (vl*)", 1)
	q.uses("alice", "requests per day (vl*)", 2)
	want(t, q.ask("bob", "vl", "", "X-Audio-Duration", "60"), 200)
}

func namesTheLongest(t *testing.T, start starter) { // 11, 12
	q := start(t, "mode charge_after\nmodel a {\nlimit 10 tokens per hour\nlimit 10 tokens per day\nlimit 10 tokens per week\n}\n"+
		"model b {\nlimit 1k tokens per hour\nlimit 1k tokens per day\nlimit 10 tokens per week\n}")
	before := time.Now()
	for _, m := range []string{"a", "b"} {
		want(t, q.ask("alice", m, ""), 200)
		w := q.ask("alice", m, "")
		want(t, w, 429)
		has(t, w, "X-RateLimit-Ban-Level", "weekly", "X-RateLimit-Window", "week", "X-Should-Retry", "false")
		for _, r := range q.rows("alice") {
			if r.Rule == "tokens per week ("+m+")" {
				waits(t, w, r.ResetsAt, before)
			}
		}
		want(t, q.ask("bob", m, ""), 200)
	}
}

func saysWhatIsUsedUp(t *testing.T, start starter) { // 13, 14, 15
	q := start(t, "model ocr* {\nlimit 3 images per day\ntype ocr\n}\nmodel t* {\nlimit 1 requests per day\n}")
	want(t, q.send("alice", "ocr-1", 3), 200)
	w := q.send("alice", "ocr-1", 1)
	want(t, w, http.StatusTooManyRequests)
	has(t, w, "X-RateLimit-Ban-Level", "daily", "X-RateLimit-Model", "ocr-1", "X-RateLimit-Model-Type", "ocr",
		"X-RateLimit-Unit", "images", "X-RateLimit-Window", "day", "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0")
	if code(w) != "rate_limit_exceeded" {
		t.Errorf("got %s", w.Body)
	}
	want(t, q.ask("alice", "t1", ""), 200)
	w = q.ask("alice", "t1", "")
	has(t, w, "X-RateLimit-Model", "t1", "X-RateLimit-Model-Type", "text", "X-RateLimit-Unit", "requests", "X-RateLimit-Limit", "1")
}

func addsUpExactly(t *testing.T, start starter) { // 19
	q := start(t, "limit 1M tokens per day\nmodel m* {\nlimit 1M tokens per day\nlimit 1M tokens per week\nper_model\n}")
	answer = servedBy("m", 7, 4)
	const callers, calls = 8, 25
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range calls {
				if w := q.ask("alice", []string{"m-1", "m-2"}[i%2], ""); w.Code != 200 {
					t.Errorf("got %d: %s", w.Code, w.Body)
				}
			}
		})
	}
	wg.Wait()
	q.uses("alice", "tokens per day", callers*calls*11)
	for _, m := range []string{"m-1", "m-2"} {
		q.uses("alice", "tokens per day (m*) ["+m+"]", callers/2*calls*11)
		q.uses("alice", "tokens per week (m*) ["+m+"]", callers/2*calls*11)
	}
}

func outlivesAReload(t *testing.T, start starter) { // 21
	q := start(t, "model qwen* {\nlimit 1k tokens per day\nper_model\n}")
	want(t, q.ask("alice", "qwen-max", ""), 200)
	// the globs are the block: their order, the amount and what else there is are not
	q.reload(t, "model x {\nlimit 1 tokens per day\n}\nmodel QWEN* {\nlimit 16 tokens per day shadow\nlimit 2 requests per day\nper_model\n}")
	want(t, q.ask("alice", "Qwen/qwen-max", ""), 200)
	q.uses("alice", "tokens per day (QWEN*) [qwen-max]", 30)
	q.uses("alice", "requests per day (QWEN*) [qwen-max]", 1)
}

func tellsTheTightest(t *testing.T, start starter) { // 22
	q := start(t, "limit 1M tokens per day\nmodel a {\nlimit 100k tokens per day\nlimit 1 images per day\n}\nmodel b {\nlimit 10 tokens per day shadow\n}")
	w := q.ask("alice", "a", "")
	has(t, w, "X-RateLimit-Limit", "100000", "RateLimit-Policy", `"tokens per day (a)";q=100000;w=86400`)
	w = q.ask("alice", "b", "")
	has(t, w, "X-RateLimit-Limit", "1000000")
	w = q.send("alice", "a", 1)
	has(t, w, "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0")
	want(t, w, 200)
	want(t, q.ask("alice", "b", ""), 200) // a shadow refuses nobody
	q.uses("alice", "tokens per day (b)", 30)
	q.uses("bob", "tokens per day (b)", 0)
}

func saysWhatIsUnlisted(t *testing.T, start starter) { // 23
	q := start(t, "unlisted deny\nlimit 1k requests per day\nmodel qwen* {\nlimit 1k tokens per day\n}")
	want(t, q.ask("alice", "qwen-max", ""), 200)
	for _, w := range []interface{ Result() *http.Response }{
		q.ask("alice", "gpt-4o", ""),
		q.do("POST", "/v1/chat/completions", `{"messages":[]}`, "X-App", "alice"),
		q.ask("alice", "qwen-max", `"models":["gpt-4o"],`),
		q.do("POST", "/openai/deployments/gpt-4o/chat/completions", `{"model":"qwen-max","messages":[]}`, "X-App", "alice"),
	} {
		if got := w.Result().StatusCode; got != 403 {
			t.Errorf("got %d", got)
		}
	}
	want(t, q.do("GET", "/v1/models", "", "X-App", "alice"), 200)
	q.uses("alice", "requests per day", 2)

	q = start(t, "shadow\nunlisted deny\nlimit 1k requests per day\nmodel qwen* {\nlimit 1 requests per day\n}")
	want(t, q.ask("alice", "gpt-4o", ""), 200)
	if got := q.logged()["shadow_refused_by"]; got != q.name {
		t.Errorf("logged %v", got)
	}
	q.uses("alice", "requests per day", 1)

	q = start(t, "unlisted allow\nmodel qwen* {\nlimit 1 requests per day\n}")
	for range 3 {
		want(t, q.ask("alice", "gpt-4o", ""), 200)
	}
	w := q.do("POST", "/v1/messages", `{"max_tokens":1,"messages":[]}`, "X-App", "alice")
	want(t, w, 200)
}

func countsStreams(t *testing.T, start starter) { // 24, 29
	q := start(t, "model qwen* {\nlimit 20 tokens per day\nper_model\n}")
	answer = stream
	body := `{"model":"qwen-max","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	want(t, q.do("POST", "/v1/chat/completions", body, "X-App", "alice"), 200)
	q.uses("alice", "tokens per day (qwen*) [qwen-max]", 23)
	want(t, q.do("POST", "/v1/chat/completions", body, "X-App", "alice"), 429)
	want(t, q.do("POST", "/v1/chat/completions", body, "X-App", "bob"), 200)
}

// stream is an answer in events that used 23 tokens.
var stream = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/event-stream")
	_, err := w.Write([]byte(": hello\n\ndata:{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"qwen-max\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n" +
		"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"qwen-max\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":3,\"total_tokens\":23}}\n\ndata: [DONE]\n\n"))
	return err
})

func agreesWithTheLog(t *testing.T, start starter) { // 25
	q := start(t, "model * {\nlimit 1k tokens per day\n}")
	want(t, q.ask("alice", "m", ""), 200)
	if got := q.logged()["total_tokens"]; got != 15.0 {
		t.Errorf("logged %v", got)
	}
	q.uses("alice", "tokens per day (*)", 15)
}

func sharesWithoutAKey(t *testing.T, start starter) { // 26, 27
	q := start(t, "key {header.X-Team}\nusage_fields meta.in meta.out\nmodel * {\nlimit 10 tokens per day\n}")
	answer = reply(http.StatusOK, `{"text":"x","meta":{"in":4,"out":6}}`)
	call := func(team string) int {
		return q.do("POST", "/generate", `{"model":"m","prompt":"hi"}`, "X-Team", team).Code
	}
	if a, b, c := call(""), call(""), call("red"); a != 200 || b != 429 || c != 200 {
		t.Errorf("got %d, %d and %d", a, b, c)
	}
	q.uses("default", "tokens per day (*)", 10)
	q.uses("red", "tokens per day (*)", 10)
}

func holdsInFlight(t *testing.T, start starter) { // 30
	q := start(t, "model * {\nlimit 100 tokens per day\n}")
	var served atomic.Int64
	gate := make(chan struct{})
	answer = func(w http.ResponseWriter, r *http.Request) error {
		served.Add(1)
		<-gate
		return servedBy("m", 9, 5)(w, r)
	}
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range 30 {
		wg.Go(func() {
			if q.ask("alice", "m", "").Code == 429 {
				refused.Add(1)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); served.Load()+refused.Load() < 30; {
		if time.Now().After(deadline) {
			t.Fatal("some calls are neither served nor refused")
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(gate)
	wg.Wait()
	n := served.Load()
	if n < 2 || n > 10 {
		t.Errorf("%d calls of 14 tokens were let into 100", n)
	}
	q.uses("alice", "tokens per day (*)", float64(14*n))
}

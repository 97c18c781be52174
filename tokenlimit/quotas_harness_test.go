package tokenlimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// quotas is a gateway with one token_limit, of the name that it is asked by.
type quotas struct {
	*gateway
	name   string
	global string // of its config
}

// starter makes a gateway with these lines in its limiter.
type starter func(t *testing.T, lines string) *quotas

var quotasMade atomic.Int64

// eachStore runs a test over every store; start makes a gateway of a limiter that counts
// by consumer and has these lines.
func eachStore(t *testing.T, run func(t *testing.T, start starter)) {
	t.Helper()
	with := func(global string) starter {
		return func(t *testing.T, lines string) *quotas {
			t.Helper()
			name := "q" + strconv.FormatInt(quotasMade.Add(1), 10)
			return quotasOf(t, global, name, lines)
		}
	}
	t.Run("memory", func(t *testing.T) {
		run(t, with("llm {\nstore memory {\npersist off\n}\nmeter {\ntrust_duration X-Audio-Duration X-Video-Duration\n}\n}"))
	})
	t.Run("redis", func(t *testing.T) {
		srv := redistest.Start(t)
		run(t, with(redisGlobal(srv)))
	})
}

func redisGlobal(srv *redistest.Server) string {
	return "llm {\nstore redis {\naddress " + srv.Addr() + "\ntimeout 5s\non_outage deny\n}\nmeter {\ntrust_duration X-Audio-Duration X-Video-Duration\n}\n}"
}

func quotasOf(t *testing.T, global, name, lines string) *quotas {
	t.Helper()
	// what is counted must not start again in the middle of a test
	if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 20*time.Second {
		time.Sleep(left)
	}
	by := "consumer_based\n"
	if strings.HasPrefix(lines, "key ") {
		by = ""
	}
	g := start(t, global, "vars llm_group {header.X-Group}\ntoken_limit "+name+" {\n"+by+lines+"\n}\ntest_upstream")
	return &quotas{g, name, global}
}

// ask calls a model. more are members of the body, each with a comma behind; headers are
// name, value, ….
func (q *quotas) ask(app, model, more string, headers ...string) *httptest.ResponseRecorder {
	body := `{"model":"` + model + `",` + more + `"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	return q.do("POST", "/v1/chat/completions", body, append(headers, "X-App", app)...)
}

// pictures is the member of a call that sends so many pictures.
func pictures(n int) string {
	part := `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`
	return `"messages":[{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(part+",", n), ",") + `]}]`
}

// send calls a model with so many pictures.
func (q *quotas) send(app, model string, n int) *httptest.ResponseRecorder {
	return q.do("POST", "/v1/chat/completions", `{"model":"`+model+`","max_tokens":5,`+pictures(n)+`}`, "X-App", app)
}

// row is a counter as the admin endpoint tells it.
type row struct {
	Rule, Consumer, Model, Unit      string
	Limit, Used, Reserved, Remaining float64
	WindowStart                      time.Time `json:"window_start"`
	ResetsAt                         time.Time `json:"resets_at"`
}

func (q *quotas) rows(consumer string) (rows []row) {
	q.t.Helper()
	if err := json.Unmarshal(admin(q.t, "/llm/usage?instance="+q.name+"&consumer="+consumer), &rows); err != nil {
		q.t.Fatal(err)
	}
	return rows
}

// uses checks what is used of a rule; a model behind it in brackets is whose own it is.
// A store that others share may take a moment.
func (q *quotas) uses(consumer, rule string, used float64) {
	q.t.Helper()
	var got row
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got = q.counter(consumer, rule); got.Used == used && got.Reserved == 0 {
			return
		}
		if time.Now().After(deadline) {
			q.t.Errorf("%s of %s: used %v, reserved %v, want %v", rule, consumer, got.Used, got.Reserved, used)
			return
		}
	}
}

// counter is the one of a rule, all zero if nothing was counted.
func (q *quotas) counter(consumer, rule string) row {
	q.t.Helper()
	for _, r := range q.rows(consumer) {
		name := r.Rule
		if r.Model != "" {
			name += " [" + r.Model + "]"
		}
		if name == rule {
			return r
		}
	}
	return row{}
}

// has checks header fields, given as name, value, ….
func has(t testing.TB, w *httptest.ResponseRecorder, headers ...string) {
	t.Helper()
	for i := 0; i < len(headers); i += 2 {
		if got := w.Header().Get(headers[i]); got != headers[i+1] {
			t.Errorf("%s: got %q, want %q", headers[i], got, headers[i+1])
		}
	}
}

// code is what an answer of ours calls the fault.
func code(w *httptest.ResponseRecorder) string {
	var body struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(w.Body.Bytes(), &body)
	return body.Error.Code
}

// servedBy is an answer of a model that used so many tokens.
func servedBy(model string, input, output int) caddyhttp.HandlerFunc {
	return reply(http.StatusOK, fmt.Sprintf(`{"id":"c","object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		model, input, output, input+output))
}

// waits checks that an answer says to wait until an instant, within what the test took.
func waits(t *testing.T, w *httptest.ResponseRecorder, until, before time.Time) {
	t.Helper()
	after := time.Now()
	got, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		t.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
	}
	wait := time.Duration(got) * time.Second
	// a second for rounding, and one for clocks that differ
	if least, most := until.Sub(after)-time.Second, until.Sub(before)+2*time.Second; wait < least || wait > most {
		t.Errorf("told to wait %s, want %s to %s", wait, least, most)
	}
}

// reload puts other lines in force, under the same name.
func (q *quotas) reload(t *testing.T, lines string) {
	t.Helper()
	q.gateway = quotasOf(t, q.global, q.name, lines).gateway
}

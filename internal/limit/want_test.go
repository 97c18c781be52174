package limit

import (
	"math"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// ask is the prompt of these tests: 40 bytes of text in one message, which is
// expected to be 10 tokens, and 4 and 3 for message and prompt.
const (
	ask       = `"messages":[{"role":"user","content":"0123456789012345678901234567890123456789"}]`
	askTokens = 17
)

func TestWants(t *testing.T) {
	const chat, embeddings = "/v1/chat/completions", "/v1/embeddings"
	for _, tc := range []struct {
		name         string
		mode         Mode
		shared       bool
		limit        string
		path, body   string
		output       int64
		input, total int64 // 0: of the prompt, and the sum
		writeCap     bool
	}{
		{name: "charge_after holds nothing", mode: ChargeAfter, body: `"max_tokens":5`, input: -1, total: -1},
		{name: "charge_after holds nothing of a shared counter", mode: ChargeAfter, shared: true, input: -1, total: -1},

		{name: "reserve holds what is expected", output: 1024},
		{name: "reserve holds no more than the cap", body: `"max_tokens":5`, output: 5},
		{name: "reserve holds no more than the newer cap", body: `"max_completion_tokens":7`, output: 7},
		{name: "reserve holds less than a huge cap", body: `"max_tokens":1000000`, output: 1024},
		{name: "reserve holds the cap of every choice", body: `"max_tokens":5,"n":3`, output: 15},
		{name: "reserve holds no output of embeddings", path: embeddings, body: `"input":"0123456789"`, input: 6, output: 0},
		{name: "reserve holds what calls usually use of a shared counter", shared: true, body: `"max_tokens":5`, input: 4096, output: 4096, total: 4096},
		{name: "reserve ignores a huge cap on a shared counter", shared: true, body: `"max_tokens":1000000`, input: 4096, output: 4096, total: 4096},

		{name: "strict holds the cap", mode: Strict, body: `"max_tokens":5`, input: -2, output: 5},
		{name: "strict holds a huge cap", mode: Strict, body: `"max_tokens":1000000`, input: -2, output: 1_000_000},
		{name: "strict holds the cap of every choice", mode: Strict, body: `"max_tokens":5,"n":3`, input: -2, output: 15},
		{name: "strict holds the larger of two caps", mode: Strict, body: `"max_tokens":1,"max_completion_tokens":10000`, input: -2, output: 10_000},
		{name: "strict holds the same of a shared counter", mode: Strict, shared: true, body: `"max_tokens":5`, input: -2, output: 5},
		{name: "strict writes a cap where there is none", mode: Strict, input: -2, output: 16, writeCap: true},
		{name: "strict writes a cap for every choice", mode: Strict, body: `"n":3`, input: -2, output: 48, writeCap: true},
		{name: "strict writes a cap where there is only the vendor's", mode: Strict, path: "/v1/completions", body: `"prompt":"0123456789"`, input: -2, output: 16, writeCap: true},
		{name: "strict writes no cap where output does not count", mode: Strict, limit: "9k input_tokens per hour", input: -2},
		{name: "strict writes no cap for embeddings", mode: Strict, path: embeddings, body: `"input":"0123456789"`, input: -2},

		{name: "limits of requests need nothing", limit: "5 requests per hour", input: -1, total: -1},
		{name: "strict limits of requests need nothing", mode: Strict, limit: "5 requests per hour", input: -1, total: -1},
		{name: "strict limits of calls at one time need nothing", mode: Strict, limit: "5 concurrent", input: -1, total: -1},
		{name: "what is free needs nothing", path: "/v1/moderations", input: -1, total: -1},
		{name: "what is free needs nothing in strict", mode: Strict, path: "/v1/moderations", input: -1, total: -1},
		{name: "what is not metered needs nothing", path: "/v1/batches", input: -1, total: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.path == "" {
				tc.path = chat
			}
			if tc.limit == "" {
				tc.limit = "10k tokens per hour"
			}
			body := ask
			if tc.path != chat {
				body = `"model":"m"`
			}
			if tc.body != "" {
				body += "," + tc.body
			}
			call := newCall(t, meter.New(), newRequest("POST", tc.path, "{"+body+"}"))
			l := newTestLimiter(t, Config{Mode: tc.mode, ConsumerBased: !tc.shared, Limits: parse(t, tc.limit)})
			w, f := l.want(call, l.rules)
			if f != nil {
				t.Fatal(f)
			}
			switch tc.input {
			case -2: // bounded by bytes, and at least what is expected
				if worst := call.Request.PromptWorst(); w.input != worst || worst < call.Request.PromptTokens() {
					t.Errorf("got input %d, want %d", w.input, worst)
				}
				tc.input = w.input
			case -1:
				tc.input = 0
			case 0:
				tc.input = askTokens
			}
			switch tc.total {
			case -1:
				tc.total = 0
			case 0:
				tc.total = tc.input + tc.output
			}
			if w.input != tc.input || w.output != tc.output || w.total != tc.total {
				t.Errorf("got input %d, output %d, total %d; want %d, %d, %d", w.input, w.output, w.total, tc.input, tc.output, tc.total)
			}
			if w.writeCap != tc.writeCap {
				t.Errorf("got writeCap %t", w.writeCap)
			}
		})
	}
}

func TestStrictRefusesWhatHasNoBound(t *testing.T) {
	const external = `{"model":"m","input":"hi","previous_response_id":"resp_1","max_output_tokens":5}`
	for _, tc := range []struct {
		name    string
		mode    Mode
		limit   string
		refused bool
	}{
		{"strict", Strict, "1k tokens per hour", true},
		{"strict, of requests alone", Strict, "1k requests per hour", false},
		{"reserve", Reserve, "1k tokens per hour", false},
		{"charge_after", ChargeAfter, "1k tokens per hour", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			call := newCall(t, meter.New(), newRequest("POST", "/v1/responses", external))
			l := newTestLimiter(t, Config{Mode: tc.mode, Limits: parse(t, tc.limit)})
			_, f := l.want(call, l.rules)
			if (f != nil) != tc.refused {
				t.Fatalf("got %v", f)
			}
			if f != nil && (f.Status != 400 || f.Code != "request_not_bounded" || !strings.HasSuffix(f.Message, call.Request.ExternalWhat)) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestTakes(t *testing.T) {
	w := wants{input: 100, output: 50, total: 150}
	capped := wants{input: 100, output: 16, total: 116, writeCap: true, choices: 1, more: 4080}
	for _, tc := range []struct {
		name  string
		mode  Mode
		limit string
		wants wants
		want  store.Take // but for rule and limit
	}{
		{"requests, charge_after", ChargeAfter, "5 requests per hour", wants{}, store.Take{Need: 1, Charge: 1}},
		{"requests, reserve", Reserve, "5 requests per hour", w, store.Take{Need: 1, Charge: 1}},
		{"requests, strict", Strict, "5 requests per hour", w, store.Take{Need: 1, Charge: 1}},
		{"concurrent, charge_after", ChargeAfter, "5 concurrent", wants{}, store.Take{Need: 1, Hold: 1}},
		{"concurrent, strict", Strict, "5 concurrent", w, store.Take{Need: 1, Hold: 1}},
		{"tokens, charge_after", ChargeAfter, "5 tokens per hour", wants{}, store.Take{Need: 1, IgnoreHeld: true}},
		{"tokens, reserve", Reserve, "5 tokens per hour", w, store.Take{Need: 1, Hold: 150}},
		{"input tokens, reserve", Reserve, "5 input_tokens per hour", w, store.Take{Need: 1, Hold: 100}},
		{"output tokens, reserve", Reserve, "5 output_tokens per hour", w, store.Take{Need: 1, Hold: 50}},
		{"uncached tokens, reserve", Reserve, "5 uncached_tokens per hour", w, store.Take{Need: 1, Hold: 150}},
		{"tokens, strict", Strict, "5 tokens per hour", w, store.Take{Need: 150, Hold: 150}},
		{"output tokens, strict", Strict, "5 output_tokens per hour", w, store.Take{Need: 50, Hold: 50}},
		{"output tokens of embeddings, strict", Strict, "5 output_tokens per hour", wants{input: 9, total: 9}, store.Take{Need: 1}},
		{"tokens without a cap, strict", Strict, "5 tokens per hour", capped, store.Take{Need: 116, Hold: 116, HoldMost: 4196}},
		{"output tokens without a cap, strict", Strict, "5 output_tokens per hour", capped, store.Take{Need: 16, Hold: 16, HoldMost: 4096}},
		{"input tokens without a cap, strict", Strict, "5 input_tokens per hour", capped, store.Take{Need: 100, Hold: 100}},
		{"a bucket holds its burst", Reserve, "5 tokens per hour burst 9", w, store.Take{Need: 1, Hold: 150}},
		{"shadow", Reserve, "5 tokens per hour shadow", w, store.Take{Need: 1, Hold: 150, Shadow: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, Config{Mode: tc.mode, Limits: parse(t, tc.limit)})
			ru := l.rules[0]
			tc.want.Rule, tc.want.Limit = ru.store, ru.limit
			if got := l.take(ru, &tc.wants); got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestTheWholeInstanceMayBeAShadow(t *testing.T) {
	l := newTestLimiter(t, Config{Shadow: true, Limits: parse(t, "5 tokens per hour", "5 requests per hour")})
	for _, ru := range l.rules {
		if !l.take(ru, &wants{}).Shadow {
			t.Errorf("%s can refuse", ru.words)
		}
	}
}

func TestCapWithin(t *testing.T) {
	for _, tc := range []struct {
		name    string
		limits  []string
		got     []int64 // of each rule
		choices int64
		want    int64
	}{
		{"room for all", []string{"1M tokens per hour"}, []int64{100 + 4096}, 1, 4096},
		{"room for some", []string{"1M tokens per hour"}, []int64{100 + 300}, 1, 300},
		{"room for the least", []string{"1M tokens per hour"}, []int64{100 + 16}, 1, 16},
		{"the tightest of several", []string{"1M tokens per hour", "1M output_tokens per hour", "1M uncached_tokens per hour"}, []int64{100 + 900, 700, 100 + 800}, 1, 700},
		{"for each choice", []string{"1M output_tokens per hour"}, []int64{300}, 4, 75},
		{"rounded down", []string{"1M output_tokens per hour"}, []int64{303}, 4, 75},
		{"input does not matter", []string{"1M input_tokens per hour", "1M output_tokens per hour"}, []int64{100, 300}, 1, 300},
		{"requests do not matter", []string{"5 requests per hour", "5 concurrent", "1M output_tokens per hour"}, []int64{0, 1, 300}, 1, 300},
		{"a shadow does not matter", []string{"1M tokens per hour shadow", "1M output_tokens per hour"}, []int64{116, 300}, 1, 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, Config{Mode: Strict, Limits: parse(t, tc.limits...)})
			e := &entry{l: l, rules: l.rules}
			for _, got := range tc.got {
				e.results = append(e.results, store.Result{Got: got})
			}
			w := wants{input: 100, output: leastCap * tc.choices, more: (mostCap - leastCap) * tc.choices, choices: tc.choices}
			if got := w.capWithin(e); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAddSaturates(t *testing.T) {
	for _, tc := range []struct{ a, b, want int64 }{
		{1, 2, 3},
		{math.MaxInt64, 0, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64 - 1, 1, math.MaxInt64},
	} {
		if got := add(tc.a, tc.b); got != tc.want {
			t.Errorf("%d + %d: got %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

// A call that asks for a thousand pictures needs room for them, and keeps it from others
// only where the count is its own, or may never be passed.
func TestPicturesHeldOfASharedLimit(t *testing.T) {
	for _, tc := range []struct {
		shared bool
		mode   Mode
		hold   int64
	}{{true, Reserve, 10}, {true, Strict, 1000}, {false, Reserve, 1000}} {
		l := newTestLimiter(t, Config{ConsumerBased: !tc.shared, Mode: tc.mode, Limits: parse(t, "1000 images per hour")})
		take := l.take(l.rules[0], &wants{media: media{generated: 1000}})
		if take.Need != 1000 || take.Hold != tc.hold {
			t.Errorf("shared %t, %s: needs %d and holds %d, want 1000 and %d", tc.shared, tc.mode, take.Need, take.Hold, tc.hold)
		}
	}
}

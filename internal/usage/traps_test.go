package usage

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// events makes an event stream of data.
func events(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

const (
	word1  = `{"model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}`
	finish = `{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`
	counts = `{"model":"m","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`
	done   = `[DONE]`
)

// chat makes a chat completion with the usage object.
func chat(usage string) string {
	return `{"model":"m","choices":[{"index":0,"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":` + usage + `}`
}

// perChoice makes an event that counts a choice by itself.
func perChoice(index, completion int) string {
	return `{"model":"m","choices":[{"index":` + strconv.Itoa(index) + `,"delta":{"content":"x"}}],"usage":{"prompt_tokens":8,` +
		`"completion_tokens":` + strconv.Itoa(completion) + `,"total_tokens":` + strconv.Itoa(8+completion) + `}}`
}

func TestTraps(t *testing.T) {
	const sse, plain = "text/event-stream", "application/json"
	ten := Usage{Input: 10, Output: 2}
	ok := func(u Usage) Report { return Report{Usage: u, Found: true, Complete: true, Model: "m", Delivered: 5} }
	none := Report{Complete: true, Model: "m", Delivered: 5}
	tests := []struct {
		name string
		kind string
		body string
		want Report
	}{
		{"null usage does not reset", sse, events(word1, counts, finish, done), ok(ten)},
		{"no choices do not mean usage", sse, events(`{"choices":[],"prompt_filter_results":[]}`, word1, finish, done), none},
		{
			"usage beside choices", sse, events(word1, perChoice(0, 3), done),
			Report{Usage: Usage{Input: 8, Output: 3}, Found: true, Complete: true, Model: "m", Delivered: 6},
		},
		{"usage is not last", sse, events(word1, counts, `{"model":"m","choices":[],"moderation":{"x":1}}`, done), ok(ten)},
		{
			"usage on every chunk is cumulative", sse, events(perChoice(0, 1), perChoice(0, 2), perChoice(0, 9), done),
			Report{Usage: Usage{Input: 8, Output: 9}, Found: true, Complete: true, Model: "m", Delivered: 3},
		},
		{
			"usage per choice without a sum is summed", sse,
			events(perChoice(0, 1), perChoice(1, 1), perChoice(0, 4), perChoice(1, 6), done),
			Report{Usage: Usage{Input: 8, Output: 10}, Found: true, Complete: true, Model: "m", Delivered: 4},
		},
		{
			"usage per choice with a sum is not", sse, events(perChoice(0, 4), perChoice(1, 6), counts, done),
			Report{Usage: ten, Found: true, Complete: true, Model: "m", Delivered: 2},
		},
		{"counts go down", sse, events(
			`{"model":"m","choices":[],"usage":{"prompt_tokens":169,"completion_tokens":5,"total_tokens":174}}`, word1, counts, done), ok(ten)},
		{"zeros do not erase", sse, events(word1, counts,
			`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, done), ok(ten)},
		{"zeros beside output are no report", plain, chat(`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`), none},
		{
			"zeros without output are one", plain,
			`{"model":"m","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
			Report{Found: true, Complete: true, Model: "m"},
		},
		{
			"zeros beside embeddings are no report", plain,
			`{"model":"m","data":[{"embedding":[1]}],"usage":{"prompt_tokens":0,"total_tokens":0}}`,
			Report{Complete: true, Model: "m"},
		},
		{
			"two copies count once", sse, events(word1, `{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],`+
				`"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4},"prompt_cache_hit_tokens":4},`+
				`"x_groq":{"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}}`, done),
			ok(Usage{Input: 10, Output: 2, CacheRead: 4}),
		},
		{"completion without reasoning, xAI", plain, chat(`{"prompt_tokens":291,"completion_tokens":26,"total_tokens":513,` +
			`"completion_tokens_details":{"reasoning_tokens":196}}`), ok(Usage{Input: 291, Output: 222, Reasoning: 196})},
		{
			"completion without thinking, Gemini", plain, chat(`{"prompt_tokens":35,"completion_tokens":12,"total_tokens":109}`),
			ok(Usage{Input: 35, Output: 74}),
		},
		{"no completion at all, Gemini", plain, chat(`{"prompt_tokens":35,"total_tokens":109}`), ok(Usage{Input: 35, Output: 74})},
		{
			"completion without reasoning, Perplexity", plain, chat(`{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30,` +
				`"citation_tokens":7,"reasoning_tokens":500,"num_search_queries":3}`),
			ok(Usage{Input: 17, Output: 520, Reasoning: 500, WebSearches: 3}),
		},
		{"prompt without the cache", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,` +
			`"prompt_tokens_details":{"cached_tokens":90}}`), ok(Usage{Input: 100, Output: 2, CacheRead: 90})},
		{
			"input without the cache, Anthropic", plain,
			`{"type":"message","model":"m","content":[{"type":"text","text":"Hello"}],"usage":{"input_tokens":3,` +
				`"cache_read_input_tokens":5,"cache_creation_input_tokens":7,"output_tokens":2}}`,
			ok(Usage{Input: 15, Output: 2, CacheRead: 5, CacheWrite5m: 7}),
		},
		{"usage in a choice", sse, events(word1, `{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop",`+
			`"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}]}`, done), ok(ten)},
		{
			"timings where nothing else counts", sse, events(word1,
				`{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":6,"prompt_n":4,"predicted_n":2}}`, done),
			ok(Usage{Input: 10, Output: 2, CacheRead: 6}),
		},
		{"timings give way to usage", sse, events(word1,
			`{"model":"m","choices":[],"timings":{"cache_n":600,"prompt_n":4,"predicted_n":2}}`, counts, done), ok(ten)},
		{"CRLF", sse, strings.ReplaceAll(events(word1, counts, done), "\n", "\r\n"), ok(ten)},
		{"CR", sse, strings.ReplaceAll(events(word1, counts, done), "\n", "\r"), ok(ten)},
		{"data without a space", sse, strings.ReplaceAll(events(word1, counts, done), "data: ", "data:"), ok(ten)},
		{"several data lines", sse, strings.ReplaceAll(events(word1, counts, done), `,"choices"`, ",\ndata: \"choices\""), ok(ten)},
		{"byte order mark, stream", sse, "\xEF\xBB\xBF" + events(word1, counts, done), ok(ten)},
		{"byte order mark, JSON", plain, "\xEF\xBB\xBF" + chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`), ok(ten)},
		{"comments, ids and unknown fields", sse, ": ping\n\n:\nid: 7\nretry: 10\nfoo: {\"usage\":1}\nbar\ndata\n\n" +
			events(word1, counts, done) + ": bye\n\n", ok(ten)},
		{"no blank line at the end", sse, strings.TrimRight(events(word1, counts), "\n"), ok(ten)},
		{"no done mark", sse, events(word1, finish, counts), ok(ten)},
		{"done mark without a space", sse, events(word1, counts) + "data:[DONE]\n\n", ok(ten)},
		{
			"done mark behind an error", sse, events(word1, `{"error":{"message":"x"}}`, done),
			Report{Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{
			"usage within a string", sse, events(`{"model":"m","choices":[{"index":0,"delta":{"content":"\"usage\":{\"prompt_tokens\":9}"},"finish_reason":"stop"}]}`, done),
			Report{Complete: true, Model: "m", Delivered: 27},
		},
		{"usage at other places", plain, `{"model":"m","meta":{"usage":{"prompt_tokens":9}},"choices":[{"message":{"content":"Hello",` +
			`"usage":{"prompt_tokens":9},"x":[{"usage":{"prompt_tokens":9}}]},"finish_reason":"stop"}]}`, none},
		{"escaped names", plain, `{"m\u006fdel":"m","choices":[{"message":{"c\u006Fntent":"Hello"}}],"us\u0061ge":` +
			`{"prompt\u005ftokens":10,"completion_tokens":2,"total_tokens":12}}`, ok(ten)},
		{"odd counts", plain, chat(`{"prompt_tokens":"10","completion_tokens":2.0,"total_tokens":1.2e1}`), ok(ten)},
		{"negative counts are zero", plain, chat(`{"prompt_tokens":10,"completion_tokens":-7,"total_tokens":10}`), ok(Usage{Input: 10})},
		{"huge counts are none", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":1e300}`), ok(ten)},
		{"counts of no kind are none", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":[12],"prompt_tokens_details":{"cached_tokens":1.5}}`), ok(ten)},
		{"the last of equal names counts", plain, `{"usage":{"prompt_tokens":99,"completion_tokens":9},"model":"x","model":"m",` +
			`"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":1,"prompt_tokens":10,"completion_tokens":2}}`, ok(ten)},
		{"null as the last of equal names counts", plain, `{"usage":{"prompt_tokens":99,"completion_tokens":9},"model":"m",` +
			`"choices":[{"message":{"content":"Hello"}}],"usage":null}`, none},
		{"what follows the document is ignored", plain, chat(`{"prompt_tokens":10,"completion_tokens":2}`) + "\n\x00garbage", ok(ten)},
		{"blank lines before JSON", plain, "\n\r\n  \n" + chat(`{"prompt_tokens":10,"completion_tokens":2}`), ok(ten)},
		{"error with status 200", plain, `{"error":"out of memory"}`, Report{Complete: true, Failed: true}},
		{"no error", plain, `{"error":null,"model":"m","choices":[{"message":{"content":"Hello"}}],"usage":null}`, none},
		{"empty error", plain, `{"error":"","model":"m","choices":[{"message":{"content":"Hello"}}]}`, none},
		{
			"error beside a choice", sse, events(word1, `{"model":"m","error":{"code":502},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`),
			Report{Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{
			"error as a line", "application/x-ndjson", word1 + "\n" + `{"error":"gone"}` + "\n",
			Report{Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{
			"error as an element", plain, "[" + word1 + ",\r\n" + `{"error":{"code":429}}]`,
			Report{Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{
			"error by the name of the event", sse, events(word1, counts) + "event: error\ndata: overloaded\n\n",
			Report{Usage: ten, Found: true, Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{"stream labelled JSON", plain, events(word1, counts, done), ok(ten)},
		{"stream labelled text", "text/plain; charset=utf-8", events(word1, counts, done), ok(ten)},
		{"stream labelled octets, comment first", "application/octet-stream", ": hi\n" + events(word1, counts, done), ok(ten)},
		{"stream labelled octets, name first", "application/octet-stream", "event: x\n" + events(word1, counts, done), ok(ten)},
		{"JSON labelled stream", sse, chat(`{"prompt_tokens":10,"completion_tokens":2}`), ok(ten)},
		{"JSON without a label", "", chat(`{"prompt_tokens":10,"completion_tokens":2}`), ok(ten)},
		{"lines labelled JSON, one of them broken", plain, word1 + "\n{\"x\":}\n" + counts + "\n", ok(ten)},
		{"array of documents", plain, "[" + word1 + "\n,\r\n" + counts + "]", ok(ten)},
		{"model is empty first", sse, events(`{"choices":[],"model":""}`, word1, counts, done), ok(ten)},
		{"count of tokens is not usage", plain, `{"input_tokens":1114,"model":"m"}`, Report{Complete: true, Model: "m", Delivered: 33}},
		{
			"parts together are no more than the whole", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,` +
				`"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":8,"audio_tokens":99,"image_tokens":99},` +
				`"completion_tokens_details":{"reasoning_tokens":2,"audio_tokens":99,"image_tokens":99}}`),
			ok(Usage{
				Input: 10, Output: 2, CacheRead: 8, CacheWrite5m: 2, AudioIn: 10, AudioOut: 2,
			}),
		},
		{"both vocabularies, one at zero", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"input_tokens":0,"output_tokens":0}`), ok(ten)},
		{"cache writes for hours", plain, chat(`{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cache_write_tokens":6,` +
			`"cache_write_tokens_details":{"ttl_30m_tokens":2,"ttl_12h_tokens":4}}}`), ok(Usage{Input: 10, Output: 2, CacheWrite5m: 2, CacheWrite1h: 4})},
		{"HTML is nothing", "text/html", "<html>{\"usage\":{\"prompt_tokens\":1}}", Report{Complete: true, Delivered: 35}},
		{"sound is nothing", "audio/mpeg", chat(`{"prompt_tokens":1}`), Report{Complete: true}},
		{"nothing is nothing", plain, "", Report{Complete: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := http.Header{"Content-Type": {test.kind}}
			for _, size := range []int{0, 1, 2, 3, 7, 64} {
				if got := readAll(h, http.StatusOK, []byte(test.body), size); !reflect.DeepEqual(got, test.want) {
					t.Errorf("in pieces of %d\ngot  %+v\nwant %+v", size, got, test.want)
				}
			}
		})
	}
}

func TestTrapsOfAnthropic(t *testing.T) {
	start := `{"type":"message_start","message":{"model":"m","usage":{"input_tokens":100,"cache_creation_input_tokens":50,` +
		`"cache_read_input_tokens":0,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30}}}}`
	text := `{"type":"content_block_delta","delta":{"type":"text_delta","text":"123456789"}}`
	delta := func(usage string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`
	}
	stop := `{"type":"message_stop"}`
	tests := []struct {
		name     string
		events   []string
		finished bool
		want     Report
	}{
		{
			"the delta repeats no split",
			[]string{start, text, delta(`{"cache_creation_input_tokens":60,"output_tokens":9}`), stop},
			true,
			Report{Usage: Usage{Input: 160, Output: 9, CacheWrite5m: 30, CacheWrite1h: 30}, Found: true, Complete: true},
		},
		{
			"nulls erase nothing",
			[]string{start, text, delta(`{"input_tokens":null,"cache_creation":null,"cache_creation_input_tokens":null,"output_tokens":9,"server_tool_use":null,"iterations":null}`), stop},
			true,
			Report{Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Complete: true},
		},
		{
			"the start counts the cache as input, and the delta apart",
			[]string{
				`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1000,"output_tokens":0}}}`, text,
				delta(`{"input_tokens":200,"cache_read_input_tokens":800,"output_tokens":9}`), stop,
			},
			true,
			Report{Usage: Usage{Input: 1000, Output: 9, CacheRead: 800}, Found: true, Complete: true},
		},
		{
			"a start comes twice",
			[]string{start, start, text, delta(`{"output_tokens":9}`), stop},
			true,
			Report{Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Complete: true},
		},
		{
			"aborted behind the start",
			[]string{start, text},
			false,
			Report{Usage: Usage{Input: 150, Output: 3, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true},
		},
		{
			"ended behind the start",
			[]string{start, text},
			true,
			Report{Usage: Usage{Input: 150, Output: 3, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true},
		},
		{
			"error behind the start",
			[]string{start, text, `{"type":"error","error":{"type":"overloaded_error"}}`},
			true,
			Report{Usage: Usage{Input: 150, Output: 3, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Failed: true},
		},
		{
			"aborted behind the delta",
			[]string{start, text, delta(`{"output_tokens":9}`)},
			false,
			Report{Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true},
		},
		{
			"aborted behind the stop",
			[]string{start, text, delta(`{"output_tokens":9}`), stop},
			false,
			Report{Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Complete: true},
		},
		{
			"aborted and the start knows no input",
			[]string{`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":0,"output_tokens":0}}}`, text},
			false,
			Report{},
		},
		{
			"compaction is not in the whole",
			[]string{start, text, delta(`{"input_tokens":612,"cache_creation_input_tokens":0,"output_tokens":9,"iterations":[` +
				`{"type":"compaction","input_tokens":60385,"output_tokens":100},{"type":"message","input_tokens":612,"output_tokens":9}]}`), stop},
			true,
			Report{Usage: Usage{Input: 60997, Output: 109}, Found: true, Complete: true},
		},
		{
			"an advisor is another model",
			[]string{start, text, delta(`{"output_tokens":9,"iterations":[` +
				`{"type":"advisor_message","model":"a","input_tokens":7,"cache_read_input_tokens":3,"output_tokens":2},` +
				`{"type":"advisor_message","model":"a","input_tokens":1,"output_tokens":1}]}`), stop},
			true,
			Report{
				Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Complete: true,
				Other: []ModelUsage{{Model: "a", Usage: Usage{Input: 11, Output: 3, CacheRead: 3}}},
			},
		},
		{
			"a fallback served",
			[]string{start, text, delta(`{"output_tokens":9,"iterations":[` +
				`{"type":"message","input_tokens":5,"output_tokens":0},{"type":"fallback_message","model":"f","input_tokens":7,"output_tokens":2}]}`), stop},
			true,
			Report{Usage: Usage{Input: 150, Output: 9, CacheWrite5m: 20, CacheWrite1h: 30}, Found: true, Complete: true, Model: "f"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Model == "" {
				test.want.Model = "m"
			}
			test.want.Delivered = 9
			got := readPieces(streamHeader, http.StatusOK, []byte(events(test.events...)), test.finished, func(int) int { return 50 })
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestTextIsCountedDecoded(t *testing.T) {
	tests := []struct {
		name, event string
		want        int64
	}{
		{"escapes", `{"choices":[{"delta":{"content":"a\n\"\\\u0041\u00e9\u4f60\ud83d\ude00é"}}]}`, 1 + 1 + 1 + 1 + 1 + 2 + 3 + 4 + 2},
		{"the same text under two names", `{"choices":[{"text":"Gold","delta":{"content":"Gold","reasoning":"abc","reasoning_content":"abc"}}]}`, 7},
		{"refusal", `{"choices":[{"delta":{"refusal":"No."}}]}`, 3},
		{"tool call", `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}`, 8},
		{"parts of content", `{"choices":[{"message":{"content":[{"type":"text","text":"abc"},{"thinking":[{"text":"de"}]}]}}]}`, 5},
		{"arguments as an object", `{"choices":[{"message":{"tool_calls":[{"function":{"arguments":{"a":"]"}}}]}}]}`, 9},
		{"several choices", `{"choices":[{"message":{"content":"ab"}},{"message":{"content":"cde"}}]}`, 5},
		{"responses, piece", `{"type":"response.output_text.delta","delta":"abc"}`, 3},
		{"responses, reasoning", `{"delta":"abcd","type":"response.reasoning_summary_text.delta"}`, 4},
		{"responses, sound", `{"type":"response.output_audio.delta","delta":"QUJD"}`, 0},
		{"responses, whole", `{"object":"response","status":"completed","output":[{"content":[{"text":"abc"}]},{"arguments":"{}"}]}`, 5},
		{"anthropic, thinking", `{"type":"content_block_delta","delta":{"thinking":"abc"}}`, 3},
		{"anthropic, tool", `{"type":"content_block_delta","delta":{"partial_json":"{\"a"}}`, 3},
		{"anthropic, whole", `{"type":"message","content":[{"text":"abc"},{"input":{"a":1}}]}`, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 3} {
				if got := readAll(jsonHeader, http.StatusOK, []byte(test.event), size).Delivered; got != test.want {
					t.Errorf("in pieces of %d: got %d, want %d", size, got, test.want)
				}
			}
		})
	}
}

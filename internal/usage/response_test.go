package usage

import (
	"bytes"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCutStreamIsNotFoundButDelivered(t *testing.T) {
	for _, finished := range []bool{false, true} {
		got := readPieces(streamHeader, http.StatusOK, []byte(events(word1, word1)), finished, func(int) int { return 9 })
		if want := (Report{Model: "m", Delivered: 10}); !reflect.DeepEqual(got, want) {
			t.Errorf("finished %v: got %+v, want %+v", finished, got, want)
		}
	}
}

func TestCutStreamKeepsWhatWasReported(t *testing.T) {
	got := readPieces(streamHeader, http.StatusOK, []byte(events(perChoice(0, 4))), false, func(int) int { return 9 })
	want := Report{Usage: Usage{Input: 8, Output: 4}, Found: true, Model: "m", Delivered: 1}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLastWordCompletesACutStream(t *testing.T) {
	for name, last := range map[string]string{"done mark": done, "usage of all choices": counts} {
		if !readPieces(streamHeader, http.StatusOK, []byte(events(word1, last)), false, func(int) int { return 9 }).Complete {
			t.Errorf("%s: got incomplete", name)
		}
	}
}

func TestCutJSONIsNotComplete(t *testing.T) {
	body := chat(`{"prompt_tokens":10,"completion_tokens":2}`)
	for n := 1; n < len(body); n++ {
		got := readAll(jsonHeader, http.StatusOK, []byte(body[:n]), 0)
		if got.Complete {
			t.Fatalf("behind %q: got complete", body[:n])
		}
		if want := n == len(body)-1; got.Found != want {
			t.Fatalf("behind %q: got found %v, want %v", body[:n], got.Found, want)
		}
	}
}

func TestStatusFails(t *testing.T) {
	for status, want := range map[int]bool{200: false, 204: false, 301: false, 400: true, 404: true, 529: true} {
		if got := readAll(jsonHeader, status, []byte("{}"), 0).Failed; got != want {
			t.Errorf("%d: got failed %v", status, got)
		}
	}
}

func TestImageToolIsAnotherModel(t *testing.T) {
	got := readAll(jsonHeader, http.StatusOK, []byte(`{"object":"response","status":"completed","model":"m","tools":[{"type":"function"},`+
		`{"type":"image_generation","model":"i"}],"output":[{"type":"image_generation_call","result":"aGk="},`+
		`{"type":"image_generation_call","result":null}],"usage":{"input_tokens":5,"output_tokens":3},`+
		`"tool_usage":{"image_gen":{"input_tokens":7,"output_tokens":9,"input_tokens_details":{"image_tokens":4}}}}`), 0)
	want := []ModelUsage{{Model: "i", Usage: Usage{Input: 7, Output: 9, ImageIn: 4, ImageOut: 9, Images: 1}}}
	if !reflect.DeepEqual(got.Other, want) || got.Usage != (Usage{Input: 5, Output: 3}) {
		t.Errorf("got %+v", got)
	}
}

func TestSearchesAreCountedWhereTheyAreNotReported(t *testing.T) {
	got := readAll(jsonHeader, http.StatusOK, []byte(`{"object":"response","status":"completed","output":[`+
		`{"type":"web_search_call","action":{"type":"search"}},{"action":{"type":"open_page"},"type":"web_search_call"},`+
		`{"type":"other","action":{"type":"search"}}],"usage":{"input_tokens":5,"output_tokens":3}}`), 0)
	if got.Usage.WebSearches != 1 {
		t.Errorf("got %d searches, want 1", got.Usage.WebSearches)
	}
}

func TestCloseIsFinal(t *testing.T) {
	r := NewResponse()
	r.Start(http.StatusOK, jsonHeader)
	r.Write([]byte(chat(`{"prompt_tokens":10,"completion_tokens":2}`)))
	first := r.Close(true)
	r.Write([]byte(chat(`{"prompt_tokens":99,"completion_tokens":2}`)))
	if second := r.Close(false); !reflect.DeepEqual(first, second) {
		t.Errorf("got %+v, then %+v", first, second)
	}
	r.Release()
}

func TestReleasedResponseRemembersNothing(t *testing.T) {
	r := NewResponse()
	r.Start(http.StatusOK, http.Header{"Content-Type": {"application/x-ndjson"}})
	r.Write([]byte(perChoice(0, 4) + perChoice(1, 6) + `{"choices":[{"delta":{"content":"cut \u00`))
	r.Release()
	r.Start(http.StatusOK, jsonHeader)
	r.Write([]byte(`{"model":"n","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}`))
	want := Report{Usage: Usage{Input: 3, Output: 1}, Found: true, Complete: true, Model: "n"}
	if got := r.Close(true); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.Release()
}

func TestEventsWithoutUsageDoNotAllocate(t *testing.T) {
	for name, stream := range map[string][]byte{
		"openai": openaiEvents(50), "anthropic": anthropicEvents(50), "responses": responsesEvents(50),
	} {
		r := NewResponse()
		r.Start(http.StatusOK, streamHeader)
		r.Write(stream)
		if n := testing.AllocsPerRun(20, func() { r.Write(stream) }); n != 0 {
			t.Errorf("%s: got %v allocations for 50 events, want 0", name, n)
		}
		r.Release()
	}
}

// heapOf returns how many bytes are allocated while fn runs.
func heapOf(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHugeEventsTakeNoMemory(t *testing.T) {
	chunk := bytes.Repeat([]byte("iVBORw0KGgo="), 64<<10/12)
	digits := bytes.Repeat([]byte("0.125,"), 64<<10/6)
	usage := `,"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}` + "\n\n"
	tests := []struct {
		name, head string
		filler     []byte
		tail       string
		delivered  int64
	}{
		{"string of no interest", `data: {"b64_json":"`, chunk, `"` + usage, 0},
		{"text", `data: {"choices":[{"delta":{"content":"`, chunk, `"}}]` + usage, 512 * int64(len(chunk))},
		{"word", `data: {"model":"`, chunk, `"` + usage, 0},
		{"name", `data: {"`, chunk, `":1` + usage, 0},
		{"array", `data: {"data":[{"embedding":[`, digits, `1]}]` + usage, 0},
		{"elements", `data: {"data":[`, digits, `1]` + usage, 0},
		{"depth", `data: {"x":`, bytes.Repeat([]byte(`[`), 64<<10), "", 32<<20 + 11},
		{"fragment", `data: {"timings":{"x":"`, chunk, `"}` + usage, 0},
		{"line without a name", ``, chunk, "\n" + `data: {"x":1` + usage, 0},
		{"event name", `event: `, chunk, "\n" + `data: {"x":1` + usage, 0},
		{"broken", `data: {"x":}`, chunk, "\n\n" + `data: {"x":1` + usage, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got Report
			heap := heapOf(func() {
				r := NewResponse()
				r.Start(http.StatusOK, streamHeader)
				r.Write([]byte(test.head))
				for range 512 { // 32 MiB
					r.Write(test.filler)
				}
				r.Write([]byte(test.tail))
				got = r.Close(true)
				r.Release()
			})
			if heap > 1<<20 {
				t.Errorf("got %d bytes allocated", heap)
			}
			if want := test.tail != ""; got.Found != want || got.Delivered != test.delivered {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestReportDoesNotDependOnPieces builds streams of odd parts and reads each whole and
// in pieces.
func TestReportDoesNotDependOnPieces(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"data: ", "data:", "data", "event: error", "event: x", ":", ": c", "id", "\n", "\r", "\r\n", "\n\n", " ", "{", "}", "[", "]",
		`"`, `\`, `\u00e9`, ",", ":", "null", "1", "[DONE]", "\xEF\xBB\xBF", "é", `"usage":`, `"choices":[]`, `"model":"x"`,
		word1, word1, counts, finish, perChoice(0, 3), perChoice(1, 2), `{"error":{"x":1}}`, `{"usage":{"prompt_tokens":5,`,
		`{"type":"message_start","message":{"model":"a","usage":{"input_tokens":9}}}`,
		`{"type":"content_block_delta","delta":{"text":"t\n"}}`, `{"type":"message_delta","usage":{"output_tokens":4}}`,
		`{"response":{"status":"completed","usage":{"input_tokens":6,"output_tokens":1}}}`,
		`{"type":"response.output_text.delta","delta":"d"}`,
		geminiChunk("a", "", `{"promptTokenCount":7,"totalTokenCount":9}`), geminiChunk("b", "STOP", ""), `{"usageMetadata":{`,
		`"promptTokenCount":3`, `{"model":"o","response":"t","done":false}`, `{"done":true,"eval_count":3,"prompt_eval_count":"4"}`,
		`{"type":"message-end","delta":{"usage":{"billed_units":{"input_tokens":2}}}}`, `{"event_type":"stream-end","response":{"text":"u"}}`,
		`{"event_type":"step.delta","delta":{"text":"v"}}`, `{"interaction":{"status":"completed","usage":{"total_tokens":8}}}`,
		`{"type":"conversation.response.done","usage":{"prompt_tokens":1}}`,
	})
	header := rapid.SampledFrom([]http.Header{streamHeader, jsonHeader, {"Content-Type": {"application/x-ndjson"}}, {}})
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "parts"), ""))
		h := header.Draw(t, "header")
		finished := rapid.Bool().Draw(t, "finished")
		want := readAnswer(nil, h, http.StatusOK, body, finished, func(rest int) int { return rest })
		sizes := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 20).Draw(t, "sizes")
		i := 0
		got := readAnswer(nil, h, http.StatusOK, body, finished, func(int) int {
			i++
			return sizes[i%len(sizes)]
		})
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nin pieces %+v\nwhole     %+v", body, got, want)
		}
	})
}

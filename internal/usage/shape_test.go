package usage

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shapedStreams are events and lines as servers write them. In place of # comes the text of
// a piece, and in place of @ what nobody looks at.
var shapedStreams = []string{
	`data: {"id":"@","object":"chat.completion.chunk","created":17,"model":"m","choices":[{"index":0,"delta":{"content":"#"},"finish_reason":null}],"usage":null}` + "\n\n",
	`data: {"id": "@", "model": "m", "choices": [{"index": 0, "delta": {"content": "#", "role": "assistant"}, "logprobs": null}]}` + "\n\n",
	`data: {"id":"@","model":"m","service_tier":"flex","choices":[{"index":1,"delta":{"reasoning":"#","content":""}}]}` + "\r\n\r\n",
	`data:{"model":"m","choices":[{"index":0,"delta":{"reasoning_content":"#","reasoning":"#"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"}},{"index":1,"delta":{"content":"#"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"@","function":{"name":"f","arguments":"#"}}]}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"}}],"timings":{"prompt_n":3}}` + "\n\n",
	`data: {"choices":[{"index":0,"text":"#","logprobs":{"tokens":["@"]}}]}` + "\n\n",
	`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#","content":"x"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"},"x":[1,"]"],"x":{"y":"@"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"reasoning":{"a":1},"reasoning_content":"#"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"text":[],"delta":{"content":"#"}}]}` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":{"a":1}}}]}}],"text":"#"}` + "\n\n",
	"data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"#\"}}]}\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"}}]` + "\n\n",
	`data: {"choices":[{"index":0,"delta":{"content":"#"}}]} {}` + "\n\n",
	"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"#"}}` + "\n\n",
	"event: error\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"#"}}` + "\n\n",
	"event: x\r" + `data: {"type":"content_block_delta","delta":{"text":"#"}}` + "\n\n",
	"event: {\"delta\":\"@\"}\n" + `data: {"type":"content_block_delta","delta":{"text":"#"}}` + "\n\n",
	"id: @\n" + `data: {"type":"content_block_delta","delta":{"text":"#"}}` + "\n\n",
	"event: message_start\n" + `data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}` + "\n\n",
	"event: message_delta\n" + `data: {"type":"message_delta","delta":{"text":"#"},"usage":{"output_tokens":7}}` + "\n\n",
	"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"@","delta":"#","obfuscation":"@"}` + "\n\n",
	`data: {"type":"response.output_audio.delta","delta":"#"}` + "\n\n",
	`data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"#"}}}}` + "\n\n",
	`data: {"type":"content-start","index":0,"delta":{"message":{"content":{"text":"#"}}}}` + "\n\n",
	`data: {"event_type":"text-generation","text":"#","is_finished":false}` + "\n\n",
	`data: {"event_type":"step.delta","delta":{"type":"text","text":"#"}}` + "\n\n",
	`data: {"event_type":"step.start","delta":{"text":"#"}}` + "\n\n",
	`data: {"candidates": [{"content": {"parts": [{"text": "#"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 7,"candidatesTokenCount": 3},"responseId": "@"}` + "\n\n",
	`data: {"candidates":[{"content":{"parts":[{"text":"#"},{"inlineData":{"mimeType":"image/png"}}]}}],"usageMetadata":{"promptTokenCount":7}}` + "\n\n",
	`data: {"candidates":[{"content":{"parts":[{"text":"#"}],"role":"model"}}],"usageMetadata":{"trafficType":"ON_DEMAND"},"responseId":"@"}` + "\n\n",
	`data: {"type":"message.output.delta","id":"@","content":"#"}` + "\n\n",
	`data: {"content":"#","stop":false,"id_slot":0}` + "\n\n",
	`data: {"content":"#","choices":[],"usage":{}}` + "\n\n",
	`data: {"token":{"id":5,"text":"#","special":false},"generated_text":null,"details":null}` + "\n\n",
	`data: {"token":{"text":"x"},"generated_text":"#","details":{"generated_tokens":3,"input_length":4}}` + "\n\n",
	`data: {"type":"message.delta","content":"#"}` + "\n\n",
	`data: {"type":"transcript.text.delta","delta":"#"}` + "\n\n",
	`data: {"text":"#","meta_info":{"id":"@","prompt_tokens":4,"completion_tokens":2,"finish_reason":null}}` + "\n\n",
	`data: {"contentBlockIndex":0,"delta":{"text":"#"}}` + "\n\n",
	`data: {"error":{"message":"#"},"choices":[{"delta":{"content":"#"}}]}` + "\n\n",
	"data: [DONE]\n\n", ": @\n\n", "data: @\n\n", "\n", "\r\n", "\xEF\xBB\xBF",
	`{"model":"l","created_at":"@","message":{"role":"assistant","content":"#"},"done":false}` + "\n",
	`{"model":"l","created_at":"@","response":"#","done":false}` + "\r\n",
	`{"model":"l","response":"#","done":true,"prompt_eval_count":4,"eval_count":3}` + "\n",
	`{"choices":[{"delta":{"content":"#"}}]}` + "\n",
	`[{"choices":[{"delta":{"content":"#"}}]}` + "\n", "]\n", "x\n",
}

// shapedTexts are what a string may be, and not be.
var shapedTexts = []string{
	"a", "word ", " and a longer piece of text", "", `\n`, `\"`, `\\`, `a \"b\" c`, `\u00e9`, `\ud83d\ude00x`, `\u000`, `\x`, "é", "\x01", "a\tb", "a\nb", "a\rb",
	`"`, `\`, `","x":"`, "{", "null", strings.Repeat("long ", 60),
}

// TestShapesChangeNothing reads streams event by event and in full.
func TestShapesChangeNothing(t *testing.T) {
	header := rapid.SampledFrom([]http.Header{streamHeader, linesHeader, {}})
	rapid.Check(t, func(t *rapid.T) {
		h := header.Draw(t, "header")
		pieces := drawShaped(t, rapid.SampledFrom(shapedStreams))
		finished := rapid.Bool().Draw(t, "finished")
		compareWithFull(t, h, pieces, finished)
	})
}

// drawShaped draws the pieces of a stream that has some few kinds of events.
func drawShaped(t *rapid.T, kinds *rapid.Generator[string]) (pieces []string) {
	some := rapid.SliceOfN(kinds, 1, 3).Draw(t, "streams")
	odd := rapid.Float64Range(0, 1).Draw(t, "odd")
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		event := rapid.SampledFrom(some).Draw(t, "event")
		texts := shapedTexts[:3]
		if rapid.Float64Range(0, 1).Draw(t, "oddity") < odd {
			texts = shapedTexts
		}
		event = strings.ReplaceAll(event, "#", rapid.SampledFrom(texts).Draw(t, "text"))
		pieces = append(pieces, strings.ReplaceAll(event, "@", rapid.SampledFrom(texts).Draw(t, "id")))
		if rapid.IntRange(0, 5).Draw(t, "join") == 0 && len(pieces) > 1 {
			n := len(pieces) - 1
			pieces = append(pieces[:n-1], pieces[n-1]+pieces[n])
		}
	}
	return pieces
}

// compareWithFull has pieces read by a response that compares events, and by one that reads
// each in full because it looks for a field too.
func compareWithFull(t rapid.TB, h http.Header, pieces []string, finished bool) {
	t.Helper()
	nothing, err := NewFields([]string{"nobody.has.this"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	shaped, full := NewResponse(), NewResponse()
	full.Seek(nothing)
	for _, r := range []*Response{shaped, full} {
		r.Start(http.StatusOK, h)
		for _, p := range pieces {
			piece := []byte(p)
			r.Write(piece)
			clear(piece)
		}
	}
	got, want := shaped.Close(finished), full.Close(finished)
	shaped.Release()
	full.Release()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q\ncompared %+v\nin full  %+v", pieces, got, want)
	}
}

// TestStreamsShareShapes wants events of every stream that has pieces of text to be
// compared from the third one on at the latest, and another stream's from its second on.
func TestStreamsShareShapes(t *testing.T) {
	for name, tt := range map[string]struct {
		header http.Header
		stream []byte
		end    string
	}{
		"openai":    {streamHeader, openaiEvents(6), "\n\n"},
		"anthropic": {streamHeader, anthropicEvents(6), "\n\n"},
		"responses": {streamHeader, responsesEvents(6), "\n\n"},
		"cohere":    {streamHeader, cohereEvents(6), "\n\n"},
		"ollama":    {linesHeader, ollamaLines(6), "\n"},
	} {
		events := bytes.SplitAfter(tt.stream, []byte(tt.end))[:6]
		var first *shape
		for stream := range 2 {
			r := NewResponse()
			r.Start(http.StatusOK, tt.header)
			for i, event := range events {
				event = bytes.ReplaceAll(event, []byte("8f2Qx"), []byte{'a', byte('0' + stream)})
				r.Write(event)
				if i >= 2 && (r.shape == nil || r.unshaped > 0) {
					t.Errorf("%s, stream %d: event %d was read in full", name, stream, i)
				}
			}
			if stream == 0 {
				first = r.shape
			} else if r.shape != first {
				t.Errorf("%s: the other stream has a shape of its own", name)
			}
			r.Release()
		}
	}
}

func TestWhatHasNoShape(t *testing.T) {
	const piece = `{"choices":[{"delta":{"content":"a"}}]}`
	for _, tt := range []struct {
		name, event string
		want        bool
	}{
		{"an event", "data: " + piece + "\n\n", true},
		{"with its name", "event: x\ndata: " + piece + "\n\n", true},
		{"with line ends of another kind", "event: x\r\ndata:" + piece + "\r\n\r\n", true},
		{"a line", piece + "\n", true},
		{"an id", "id: 1\ndata: " + piece + "\n\n", false},
		{"a comment", ": x\ndata: " + piece + "\n\n", false},
		{"a name that ends oddly", "event: x\rdata: " + piece + "\n\n", false},
		{"a name and no data", "event: x\n" + piece + "\n\n", false},
		{"two lines of data", "data: {\ndata: " + piece[1:] + "\n\n", false},
		{"no end", "data: " + piece, false},
		{"more behind it", "data: " + piece + " \n\n", false},
		{"no text", `data: {"choices":[{"delta":{"content":""}}]}` + "\n\n", false},
		{"two texts", `data: {"choices":[{"delta":{"content":"a","refusal":"b"}}]}` + "\n\n", false},
		{"not valid", `data: {"choices":[{"delta":{"content":"a"}}],}` + "\n\n", false},
		{"too long", `data: {"x":[` + strings.Repeat("0,", maxShape/2) + `0],` + piece[1:] + "\n\n", false},
		{"usage that is taken out", `data: {"content":"a","choices":[],"usage":{}}` + "\n\n", false},
		{"too many holes", `data: {` + strings.Repeat(`"x":0,`, maxHoles) + piece[1:] + "\n\n", false},
		{"nothing", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, text := newShape([]byte(tt.event))
			if (s != nil) != tt.want {
				t.Fatalf("got a shape: %t", s != nil)
			}
			if s == nil {
				return
			}
			if n, m := s.match([]byte(tt.event + tt.event)); n != len(tt.event) || m != text || text != 1 {
				t.Errorf("matches %d bytes of %d, with a text of %d and %d", n, len(tt.event), m, text)
			}
			for n := range len(tt.event) {
				if m, _ := s.match([]byte(tt.event[:n])); m != 0 {
					t.Errorf("matches %q", tt.event[:n])
				}
			}
		})
	}
}

func TestShapesAreNotLookedForInVain(t *testing.T) {
	for name, text := range map[string]string{"no text": "", "a long one": strings.Repeat("a", maxShaped)} {
		r := NewResponse()
		r.Start(http.StatusOK, streamHeader)
		for range 3 {
			r.Write([]byte(`data: {"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n"))
		}
		if r.shape != nil || r.unshaped > 0 {
			t.Errorf("%s: looked for", name)
		}
		r.Release()
	}
}

// FuzzShape reads an event, and what may have its shape.
func FuzzShape(f *testing.F) {
	for i, s := range shapedStreams {
		next := shapedStreams[(i+1)%len(shapedStreams)]
		f.Add([]byte(strings.NewReplacer("#", "abc", "@", "id").Replace(s)), []byte(strings.NewReplacer("#", `\n\u00e9`, "@", "x").Replace(s)), i%2 == 0)
		f.Add([]byte(s), []byte(next), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, lines bool) {
		h := streamHeader
		if lines {
			h = linesHeader
		}
		a, b := string(first), string(second)
		pieces := []string{a, a, b, b, a + b, b}
		compareWithFull(t, h, pieces, true)
		comparePass(t, pieces)
	})
}

// A container where text belongs counts as it stands, and may be as long as the text beside
// it by chance.
func TestContainersInPlacesOfTextAreNoPieces(t *testing.T) {
	for _, tt := range []struct{ event, texts string }{
		{`{"choices":[{"index":0,"delta":{"reasoning":{"a":1},"reasoning_content":"#"}}]}`, "zz abcdefgh a a a"},
		{`{"choices":[{"index":0,"text":[],"delta":{"content":"#"}}]}`, "zz abcdef a a a"},
		{`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":{"a":1}}}]}}],"text":"#"}`, "zz abcdefg a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa a"},
	} {
		var pieces []string
		for text := range strings.FieldsSeq(tt.texts) {
			pieces = append(pieces, "data: "+strings.ReplaceAll(tt.event, "#", text)+"\n\n")
		}
		h := http.Header{"Content-Type": {"text/event-stream"}}
		compareWithFull(t, h, pieces, true)
	}
}

package usage

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A stream that is cut when its answer has only been announced has delivered nothing,
// however much of the request the announcement repeats.
func TestAnnouncementsOfAnAnswerAreNoOutput(t *testing.T) {
	echo := strings.Repeat("x", 4000)
	chat := func(delta string) string {
		return `{"object":"chat.completion.chunk","model":"` + echo + `","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
	}
	responses := func(event string) string {
		return `{"type":"` + event + `","response":{"object":"response","status":"in_progress","model":"m","instructions":"` + echo + `","usage":null}}`
	}
	for _, tt := range []struct {
		name     string
		announce []string
		text     string
		bytes    int64 // of the text
	}{
		{"chat", []string{chat(`{"role":"assistant","content":""}`)}, chat(`{"content":"Salt"}`), 4},
		{"chat without content", []string{chat(`{"role":"assistant","content":null}`)}, chat(`{"content":"Salt"}`), 4},
		{
			"responses",
			[]string{
				responses("response.created"), responses("response.in_progress"),
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}`,
				`{"type":"response.content_part.added","part":{"type":"output_text","text":""}}`,
			},
			`{"type":"response.output_text.delta","delta":"Salt"}`, 4,
		},
		{
			"cohere",
			[]string{`{"type":"message-start","delta":{"message":{"role":"assistant","tool_plan":""}}}`, `{"type":"content-start","delta":{"message":{"content":{"type":"text","text":""}}}}`},
			`{"type":"content-delta","delta":{"message":{"content":{"text":"Salt"}}}}`, 4,
		},
		{"cohere's older chat", []string{`{"event_type":"stream-start","generation_id":"g"}`}, `{"event_type":"text-generation","text":"Salt"}`, 4},
		{"mistral", []string{`{"type":"conversation.response.started","conversation_id":"c"}`}, `{"type":"message.output.delta","content":"Salt"}`, 4},
		{
			"interactions",
			[]string{`{"event_type":"interaction.created","interaction":{"object":"interaction","status":"in_progress"}}`, `{"event_type":"step.start","step":{"type":"model_output"}}`},
			`{"event_type":"step.delta","delta":{"type":"text","text":"Salt"}}`, 4,
		},
		{"lm studio", []string{`{"type":"chat.start","model_instance_id":"m"}`}, `{"type":"message.delta","content":"Salt"}`, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			delivered := func(finished bool, docs ...string) int64 {
				return readAnswer(nil, streamHeader, http.StatusOK, []byte(events(docs...)), finished, func(int) int { return 97 }).Delivered
			}
			for n := range tt.announce {
				if got := delivered(false, tt.announce[:n+1]...); got != 0 {
					t.Errorf("cut behind %d announcements: %d bytes", n+1, got)
				}
			}
			if got := delivered(false, append(tt.announce[:len(tt.announce):len(tt.announce)], tt.text)...); got != tt.bytes {
				t.Errorf("cut behind the first text: %d bytes, want %d", got, tt.bytes)
			}
			// what is not known may be text
			if got := delivered(false, append(tt.announce[:len(tt.announce):len(tt.announce)], `{"novel":"Salt"}`)...); got == 0 {
				t.Error("what came behind the announcement counts nothing")
			}
		})
	}
}

// Pieces of a chat that have their text where nobody knows are no announcements, but for
// the first of each choice.
func TestChatWhoseTextIsNotFoundCountsItsBody(t *testing.T) {
	var docs []string
	for i := range 3 {
		docs = append(docs, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"role":"assistant","musings":"piece %d"}}]}`, i))
	}
	whole := events(docs...)
	got := readAnswer(nil, streamHeader, http.StatusOK, []byte(whole), false, func(int) int { return len(whole) })
	if got.Delivered != int64(len(whole)) {
		t.Errorf("%d bytes of %d", got.Delivered, len(whole))
	}
}

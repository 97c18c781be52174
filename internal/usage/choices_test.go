package usage

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func piece(choice int, text, reason string) string {
	if reason != "" {
		reason = `"` + reason + `"`
	} else {
		reason = "null"
	}
	return `{"choices":[{"index":` + strconv.Itoa(choice) + `,"delta":{"content":"` + text + `"},"finish_reason":` + reason + `}]}`
}

func TestShortPiecesCountATokenEach(t *testing.T) {
	var all []string
	for range 40 {
		all = append(all, piece(0, "7 ", ""), piece(0, "", ""))
	}
	got := readAnswer(nil, streamHeader, http.StatusOK, []byte(events(all...)), false, func(int) int { return 9 })
	if got.Deltas != 40 || got.Delivered != 80 || got.DeliveredTokens() != 40 {
		t.Errorf("got %+v, %d tokens", got, got.DeliveredTokens())
	}
	for _, r := range []struct {
		report Report
		want   int64
	}{{Report{}, 0}, {Report{Delivered: 1}, 1}, {Report{Delivered: 9, Deltas: 2}, 3}, {Report{Delivered: 9, Deltas: 4}, 4}} {
		if got := r.report.DeliveredTokens(); got != r.want {
			t.Errorf("%+v: got %d tokens, want %d", r.report, got, r.want)
		}
	}
}

// TestCutStreamsCountPieces has streams whose usage is not final.
func TestCutStreamsCountPieces(t *testing.T) {
	anthropic := []string{`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}`}
	var gemini []string
	for range 40 {
		anthropic = append(anthropic, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"7 "}}`)
		gemini = append(gemini, geminiChunk("7 ", "", `{"promptTokenCount":9}`))
	}
	for name, stream := range map[string]string{"Anthropic": events(anthropic...), "Gemini": events(gemini...)} {
		if got := readAll(streamHeader, http.StatusOK, []byte(stream), 0); !got.Found {
			t.Errorf("%s: got %+v", name, got)
		}
		got := readPieces(streamHeader, http.StatusOK, []byte(stream), false, func(rest int) int { return rest })
		if got.Usage.Output != 40 {
			t.Errorf("%s: got an output of %d, want 40", name, got.Usage.Output)
		}
	}
}

func TestFinishedIfEveryChoiceSaidSo(t *testing.T) {
	antStart := `{"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}`
	antText := `{"type":"content_block_delta","delta":{"text":"a"}}`
	antDelta := func(reason string) string {
		return `{"type":"message_delta","delta":{"stop_reason":` + reason + `},"usage":{"output_tokens":4}}`
	}
	tests := []struct {
		name    string
		choices int64
		body    string
		want    bool
	}{
		{"not yet", 1, events(piece(0, "a", "")), false},
		{"nothing", 1, "", false},
		{"one", 1, events(piece(0, "a", ""), piece(0, "", "stop")), true},
		{"one of two", 2, events(piece(0, "a", ""), piece(1, "b", ""), piece(0, "", "stop")), false},
		{"one of two, where the other has not begun", 2, events(piece(0, "a", ""), piece(0, "", "stop")), false},
		{"both", 2, events(piece(1, "a", ""), piece(0, "b", "length"), piece(1, "", "stop")), true},
		{"both at once", 2, events(`{"choices":[{"delta":{},"finish_reason":"stop"},{"delta":{},"finish_reason":"length"}]}`), true},
		{"one of both at once", 2, events(`{"choices":[{"delta":{},"finish_reason":"stop"},{"delta":{},"finish_reason":null}]}`), false},
		{"more than were asked for", 1, events(piece(0, "a", "stop"), piece(1, "b", "")), false},
		{"a choice beyond belief", 1, events(piece(1<<20, "a", "stop")), false},
		{"done", 1, events(piece(0, "a", ""), done), true},
		{"an error", 1, events(piece(0, "a", "stop"), `{"error":{"message":"x"}}`), false},
		{"a choice that failed", 1, events(piece(0, "a", "error")), false},
		{"a piece that was cut", 1, `data: {"choices":[{"index":0,"finish_reason":"stop","delta":{"content":"ab`, false},
		{"a document that was cut", 1, `{"choices":[{"finish_reason":"stop","message":{"content":"ab`, false},
		{"a document", 1, `{"choices":[{"finish_reason":"stop","message":{"content":"ab"}}]}`, true},
		{"Anthropic, not yet", 1, events(antStart, antText), false},
		{"Anthropic", 1, events(antStart, antText, antDelta(`"end_turn"`)), true},
		{"Anthropic, on the way", 1, events(antStart, antText, antDelta("null")), false},
		{"Gemini, not yet", 1, events(geminiChunk("a", "", "")), false},
		{"Gemini", 1, events(geminiChunk("a", "", ""), geminiChunk("b", "STOP", "")), true},
		{"Responses, not yet", 1, events(`{"type":"response.output_text.delta","delta":"a"}`), false},
		{"Responses", 1, events(`{"type":"response.completed","response":{"object":"response","status":"completed"}}`), true},
		{"Ollama", 1, `{"message":{"content":"a"},"done":true}`, true},
		{"Ollama, not yet", 1, `{"message":{"content":"a"},"done":false}`, false},
		{"llama.cpp, one of two", 2, events(`{"index":0,"content":"a","stop":true}`), false},
		{"llama.cpp, both", 2, events(`{"index":1,"content":"a","stop":true}`, `{"index":0,"content":"b","stop":true}`), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := &Request{Endpoint: epChat, Choices: tt.choices}
			got := readAnswer(q, kind(""), http.StatusOK, []byte(tt.body), false, func(int) int { return 11 })
			if got.Finished != tt.want {
				t.Errorf("got %+v, want finished %v", got, tt.want)
			}
		})
	}
}

func TestFinishedWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "choices")
		var all []string
		for i := range n {
			all = append(all, piece(i, "a", ""), piece(i, "", "stop"))
		}
		all = rapid.Permutation(all).Draw(t, "order")
		left := rapid.IntRange(0, len(all)).Draw(t, "left")
		ended := 0
		for _, e := range all[:left] {
			if strings.Contains(e, "stop") {
				ended++
			}
		}
		q := &Request{Endpoint: epChat, Choices: int64(n)}
		got := readAnswer(q, streamHeader, http.StatusOK, []byte(events(all[:left]...)), false, func(int) int { return 64 })
		if got.Finished != (ended == n) {
			t.Fatalf("%d of %d ended: got %+v", ended, n, got)
		}
	})
}

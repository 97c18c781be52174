package usage

import (
	"net/http"
	"strconv"
	"testing"
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

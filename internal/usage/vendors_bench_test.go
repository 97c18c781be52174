package usage

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

// geminiEvents is a stream of n events of generateContent, each with its own counts.
func geminiEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `data: {"candidates": [{"content": {"parts": [{"text": " word%d"}],"role": "model"},"index": 0}],`+
			`"usageMetadata": {"promptTokenCount": 3120,"candidatesTokenCount": %d,"totalTokenCount": %d,`+
			`"cachedContentTokenCount": 2048,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 3120}],`+
			`"cacheTokensDetails": [{"modality": "TEXT","tokenCount": 2048}],"thoughtsTokenCount": 412},`+
			`"modelVersion": "gemini-2.5-flash","responseId": "r1"}`+"\r\n\r\n", i, i+1, 3120+412+i+1)
	}
	return b.Bytes()
}

// ollamaLines is a stream of n lines of Ollama's chat.
func ollamaLines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"model":"llama3.2:3b","created_at":"2026-11-29T10:00:00.123456Z","message":{"role":"assistant",`+
			`"content":" word%d"},"done":false}`+"\n", i)
	}
	return b.Bytes()
}

// cohereEvents is a stream of n events of Cohere's chat.
func cohereEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,"+
			"\"delta\":{\"message\":{\"content\":{\"text\":\" word%d\"}}}}\n\n", i)
	}
	return b.Bytes()
}

// linesHeader is that of a stream of lines.
var linesHeader = http.Header{"Content-Type": {"application/x-ndjson"}}

func BenchmarkVendorEvent(b *testing.B) {
	for _, bb := range []struct {
		name   string
		header http.Header
		stream []byte
		end    string
	}{
		{"gemini", streamHeader, geminiEvents(1000), "\r\n\r\n"},
		{"ollama", linesHeader, ollamaLines(1000), "\n"},
		{"cohere", streamHeader, cohereEvents(1000), "\n\n"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.stream)) / 1000)
			b.ReportAllocs()
			r := NewResponse()
			r.Start(http.StatusOK, bb.header)
			pieces := bytes.SplitAfter(bb.stream, []byte(bb.end))[:1000]
			for i := 0; b.Loop(); i++ {
				r.Write(pieces[i%1000])
			}
			r.Release()
		})
	}
}

func TestEventsOfVendorsDoNotAllocate(t *testing.T) {
	tests := []struct {
		name   string
		header http.Header
		stream []byte
	}{
		{"gemini, with usage in each", streamHeader, geminiEvents(50)},
		{"ollama", linesHeader, ollamaLines(50)},
		{"cohere", streamHeader, cohereEvents(50)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewResponse()
			r.Start(http.StatusOK, tt.header)
			r.Write(tt.stream)
			if n := testing.AllocsPerRun(20, func() { r.Write(tt.stream) }); n != 0 {
				t.Errorf("got %v allocations for 50 events, want 0", n)
			}
			r.Release()
		})
	}
}

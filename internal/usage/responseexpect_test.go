package usage

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

// answer reads the whole answer to a call of an API, in small pieces.
func answer(api API, h http.Header, status int, body []byte) Report {
	q := &Request{Endpoint: Endpoint{API: api}, Choices: 1}
	return readAnswer(q, h, status, body, true, func(int) int { return 5 })
}

func kind(contentType string) http.Header { return http.Header{"Content-Type": {contentType}} }

func TestUnknownShapesDeliverTheirBody(t *testing.T) {
	long := strings.Repeat("word ", 8000)
	tests := []struct {
		name   string
		api    API
		kind   string
		status int
		body   string
		want   int64 // -1 is the size of the body
	}{
		{"JSON", UnknownAPI, "application/json", 200, `{"completion":"` + long + `"}`, -1},
		{"a list", UnknownAPI, "application/json", 200, `{"data":[{"x":"` + long + `"}]}`, -1},
		{"predictions", UnknownAPI, "application/json", 200, `{"predictions":["` + long + `"]}`, -1},
		{"a bare string", UnknownAPI, "application/json", 200, `"` + long + `"`, -1},
		{"text", UnknownAPI, "text/plain", 200, long, -1},
		{"no type", UnknownAPI, "", 200, long, -1},
		{"a stream", UnknownAPI, "text/event-stream", 200, events(`{"x":"` + long + `"}`), -1},
		{"a known API in words of its own", OpenAIChat, "application/json", 200, `{"x":"` + long + `"}`, -1},
		{"a transcript", OpenAIAudio, "text/plain", 200, long, -1},
		{"text at a known place", UnknownAPI, "application/json", 200, `{"x":"` + long + `","choices":[{"text":"hello"}]}`, 5},
		{"a report", UnknownAPI, "application/json", 200, `{"x":"` + long + `","usage":{"total_tokens":9}}`, 0},
		{"a failure", UnknownAPI, "application/json", 500, `{"x":"` + long + `"}`, 0},
		{"an error", UnknownAPI, "application/json", 200, `{"error":{"message":"` + long + `"}}`, 0},
		{"a redirection", UnknownAPI, "text/html", 302, long, 0},
		{"sound", UnknownAPI, "audio/mpeg", 200, long, 0},
		{"sound without a type", OpenAIAudio, "application/octet-stream", 200, "\xff\xf3" + long, 0},
		{"a picture", UnknownAPI, "image/png", 200, long, 0},
		{"pictures in another shape", OpenAIImages, "application/json", 200, `{"x":"` + long + `"}`, 0},
		{"embeddings", OpenAIEmbeddings, "application/json", 200, `{"x":"` + long + `"}`, 0},
		{"embeddings by their shape", UnknownAPI, "application/json", 200, `{"data":[{"embedding":"` + long + `"}]}`, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want < 0 {
				want = int64(len(tt.body))
			}
			if got := answer(tt.api, kind(tt.kind), tt.status, []byte(tt.body)).Delivered; got != want {
				t.Errorf("got %d bytes, want %d", got, want)
			}
		})
	}
}

func TestEncodedBodiesDeliverTheirSize(t *testing.T) {
	plain := []byte(strings.Repeat("x", 40_000))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, encoding string
		body           []byte
		want           int
	}{
		{"decoded", "gzip", packed.Bytes(), len(plain)},
		{"unknown encoding", "x-rot13", plain, len(plain)},
		{"not what its encoding says", "gzip", plain, len(plain)},
	} {
		h := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {tt.encoding}}
		if got := answer(OpenAIChat, h, http.StatusOK, tt.body).Delivered; got != int64(tt.want) {
			t.Errorf("%s: got %d bytes, want %d", tt.name, got, tt.want)
		}
		h.Set("Content-Type", "audio/wav")
		if got := answer(OpenAIAudio, h, http.StatusOK, tt.body).Delivered; got != 0 {
			t.Errorf("%s, sound: got %d bytes, want 0", tt.name, got)
		}
	}
}

func TestTextIsNoReport(t *testing.T) {
	report := `{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	tests := []struct {
		name  string
		api   API
		kind  string
		body  string
		found bool
	}{
		{"a transcript", OpenAIAudio, "text/plain; charset=utf-8", report, false},
		{"a transcript that goes on", OpenAIAudio, "text/plain", report + " he said", false},
		{"a transcript like a stream", OpenAIAudio, "text/plain", events(report, done), false},
		{"a transcript as HTML", OpenAIAudio, "text/html", report, false},
		{"a transcript without a type", OpenAIAudio, "", report, false},
		{"subtitles", OpenAIAudio, "text/vtt", report, false},
		{"subtitles of a chat", OpenAIChat, "application/x-subrip", report, false},
		{"an unknown API", UnknownAPI, "text/plain", report, false},
		{"an unknown API like a stream", UnknownAPI, "text/plain", events(report), false},
		{"a transcript in JSON", OpenAIAudio, "application/json", `{"text":"a",` + report[1:], true},
		{"a stream of a transcript", OpenAIAudio, "text/event-stream", events(`{"type":"transcript.text.done","text":"a",` + report[1:]), true},
		{"chat labelled text", OpenAIChat, "text/plain", report, true},
		{"a stream of chat labelled text", OpenAIChat, "text/plain", events(word1, counts, done), true},
		{"lines labelled text", OllamaChat, "text/plain", `{"done":false}` + "\n" + `{"done":true,"eval_count":3}` + "\n", true},
		{"text behind JSON", OpenAIChat, "application/json", report + " and so on", false},
		{"text behind an array", OpenAIChat, "application/json", "[" + report + "] and so on", false},
		{"a brace behind JSON", OpenAIChat, "application/json", report + "}", false},
		{"text behind JSON labelled text", OpenAIChat, "text/plain", report + "\nand so on", false},
		{"text within JSON labelled text", OpenAIChat, "text/plain", report[:len(report)-1] + ", and so on", false},
		{"blanks behind JSON", OpenAIChat, "application/json", report + " \r\n\t ", true},
		{"JSON behind JSON", OpenAIChat, "application/json", report + report, true},
		{"an unknown API in JSON", UnknownAPI, "application/json", report, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := answer(tt.api, kind(tt.kind), http.StatusOK, []byte(tt.body))
			if got.Found != tt.found {
				t.Errorf("got found %v, want %v", got.Found, tt.found)
			}
			if !tt.found && (got.Usage != Usage{} || got.Delivered == 0 && tt.kind != "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestPicturesWithoutTokensSaySo(t *testing.T) {
	const picture = `{"type":"image_generation.completed","b64_json":"aGk=","usage":{"input_tokens":5,"output_tokens":7}}`
	const uncounted = `{"type":"image_generation.completed","b64_json":"aGk="}`
	tests := []struct {
		name    string
		h       http.Header
		body    string
		images  int64
		unknown bool
	}{
		{"no usage", jsonHeader, `{"data":[{"url":"a"},{"url":"b"}]}`, 2, true},
		{"zeros", jsonHeader, `{"data":[{"url":"a"}],"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}}`, 1, true},
		{"usage", jsonHeader, `{"data":[{"url":"a"}],"usage":{"input_tokens":5,"output_tokens":7}}`, 1, false},
		{"a stream", streamHeader, events(picture, picture), 2, false},
		{"a stream that counts one of two", streamHeader, events(picture, uncounted), 2, true},
		{"no picture", jsonHeader, `{"usage":{"total_tokens":7}}`, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := answer(OpenAIImages, tt.h, http.StatusOK, []byte(tt.body))
			if !got.Found || got.Usage.Images != tt.images || got.TokensUnknown != tt.unknown {
				t.Errorf("got %+v, want %d images, unknown %v", got, tt.images, tt.unknown)
			}
		})
	}
}

func TestExpectIsForgotten(t *testing.T) {
	for range 20 {
		answer(OpenAIAudio, kind("text/plain"), http.StatusOK, []byte("x"))
		if got := readAll(kind("text/plain"), http.StatusOK, []byte(counts), 0); !got.Found {
			t.Fatalf("got %+v", got)
		}
		answer(OpenAIChat, jsonHeader, http.StatusOK, []byte(counts+"x"))
	}
}

package tokenlimit_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// wav is a recording of silence of so many milliseconds, at 8 kHz and 8 bits.
func wav(millis int) []byte {
	data := make([]byte, 8*millis)
	var b bytes.Buffer
	b.WriteString("RIFF")
	_ = binary.Write(&b, binary.LittleEndian, uint32(36+len(data)))
	b.WriteString("WAVEfmt ")
	for _, v := range []any{uint32(16), uint16(1), uint16(1), uint32(8000), uint32(8000), uint16(1), uint16(8)} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	b.WriteString("data")
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(data)))
	b.Write(data)
	return b.Bytes()
}

// transcribe sends a recording; headers are name, value, ….
func (q *quotas) transcribe(app string, recording []byte, headers ...string) *httptest.ResponseRecorder {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	if err := form.WriteField("model", "whisper-1"); err != nil {
		q.t.Fatal(err)
	}
	part, err := form.CreateFormFile("file", "a.wav")
	if err != nil {
		q.t.Fatal(err)
	}
	if _, err := part.Write(recording); err != nil {
		q.t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		q.t.Fatal(err)
	}
	return q.do("POST", "/v1/audio/transcriptions", b.String(), append(headers, "X-App", app, "Content-Type", form.FormDataContentType())...)
}

func TestSecondsOfRecordings(t *testing.T) { // 9
	const rule = "audio_seconds per day (whisper*)"
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model whisper* {\nlimit 60 audio_seconds per day\n}")
		called := 0
		said := ""
		answer = func(w http.ResponseWriter, r *http.Request) error {
			called++
			return reply(http.StatusOK, `{"text":"hello"`+said+`}`)(w, r)
		}
		for _, tc := range []struct {
			name    string
			headers []string
			status  int
			code    string
			used    float64
		}{
			{"measured", nil, 200, "", 10.5},
			{"more than measured is believed", []string{"X-Audio-Duration", "11"}, 200, "", 11},
			{"less is not", []string{"X-Audio-Duration", "0.1"}, 200, "", 10.5},
			{"negative", []string{"X-Audio-Duration", "-5"}, 400, "invalid_duration", 0},
			{"no number", []string{"X-Audio-Duration", "NaN"}, 400, "invalid_duration", 0},
			{"huge", []string{"X-Audio-Duration", "1e300"}, 400, "invalid_duration", 0},
			{"more than the limit", []string{"X-Audio-Duration", "61"}, 400, "request_too_large", 0},
		} {
			before := called
			w := q.transcribe(tc.name, wav(10_500), tc.headers...)
			if w.Code != tc.status || code(w) != tc.code || (called > before) != (tc.status == 200) {
				t.Errorf("%s: got %d and %s, called %t", tc.name, w.Code, w.Body, called > before)
			}
			q.uses(strings.ReplaceAll(tc.name, " ", "%20"), rule, tc.used)
		}

		want(t, q.transcribe("alice", wav(40_000)), 200)
		w := q.transcribe("alice", wav(20_001))
		want(t, w, 429)
		has(t, w, "X-RateLimit-Unit", "audio_seconds", "X-RateLimit-Model-Type", "audio", "X-RateLimit-Limit", "60")
		want(t, q.transcribe("bob", wav(20_001)), 200)

		// the answer knows better
		said = `,"duration":12.25,"task":"transcribe"`
		want(t, q.transcribe("alice", wav(20_000)), 200)
		q.uses("alice", rule, 52.25)

		// what nobody can tell is not free
		w = q.transcribe("carol", []byte("no recording at all"))
		if want(t, w, 400); code(w) != "duration_unknown" {
			t.Errorf("got %s", w.Body)
		}
		want(t, q.transcribe("carol", []byte("no recording at all"), "X-Audio-Duration", "5"), 200)
		q.uses("carol", rule, 12.25)
		want(t, q.ask("carol", "gpt-4o", "", "X-Audio-Duration", "nonsense"), 200) // nothing counts it
	})
}

// What a header says of a video counts where the config trusts it, and nothing else does.
func TestSecondsOfVideos(t *testing.T) { // 9
	const (
		rule = "video_seconds per day (qwen-vl)"
		body = `{"model":"qwen-vl","max_tokens":5,"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}]}]}`
	)
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model qwen-vl {\nlimit 60 video_seconds per day\n}")
		for i, tc := range []struct {
			name   string
			said   []string
			status int
			code   string
			used   float64
		}{
			{"said", []string{"59.5"}, 200, "", 59.5},
			{"said twice, and the same", []string{"5", "5.0"}, 200, "", 5},
			{"contradicting", []string{"5", "6"}, 400, "invalid_duration", 0},
			{"absent", nil, 400, "duration_unknown", 0},
			{"empty", []string{""}, 400, "invalid_duration", 0},
			{"negative", []string{"-5"}, 400, "invalid_duration", 0},
			{"no number", []string{"NaN"}, 400, "invalid_duration", 0},
			{"without end", []string{"Inf"}, 400, "invalid_duration", 0},
			{"huge", []string{"99999999999999999999"}, 400, "invalid_duration", 0},
			{"more than the limit", []string{"60.001"}, 400, "request_too_large", 0},
		} {
			r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-App", "video"+strconv.Itoa(i))
			for _, value := range tc.said {
				r.Header.Add("X-Video-Duration", value)
			}
			w := httptest.NewRecorder()
			q.server.ServeHTTP(w, r)
			if w.Code != tc.status || code(w) != tc.code {
				t.Errorf("%s: got %d and %s", tc.name, w.Code, w.Body)
			}
			q.uses("video"+strconv.Itoa(i), rule, tc.used)
		}
	})
}

// Pictures count before the call, whichever API they are sent by.
func TestPicturesAreCountedInRequestsOfEveryAPI(t *testing.T) {
	const png = "iVBORw0KGgo="
	q := quotasOf(t, "", "apis", "limit 9 images per day")
	for i, tc := range []struct {
		name, path, body string
		pictures         float64
	}{
		{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://a.example/a.png"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}}]}]}`, 2},
		{"responses", "/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a.example/a.png"},{"type":"input_image","file_id":"f"}]}]}`, 2},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}]}]}`, 1},
		{"anthropic, of a tool", "/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://a.example/a.png"}}]}]}]}`, 1},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + png + `"}},{"inline_data":{"mime_type":"image/png","data":"` + png + `"}}]}]}`, 2},
		{"bedrock", "/model/m/converse", `{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"` + png + `"}}}]}]}`, 1},
		{"ollama", "/api/chat", `{"model":"m","messages":[{"role":"user","content":"a","images":["` + png + `","` + png + `","` + png + `"]}]}`, 3},
		{"ollama, without messages", "/api/generate", `{"model":"m","prompt":"a","images":["` + png + `"]}`, 1},
		{"cohere", "/v2/chat", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example/a.png"}}]}]}`, 1},
		{"none", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"image_url"}]}`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			app, admitted := "sender"+strconv.Itoa(i), false
			answer = func(w http.ResponseWriter, r *http.Request) error {
				admitted = true
				if held := q.counter(app, "images per day").Reserved; held != tc.pictures {
					t.Errorf("%v pictures are held", held)
				}
				return chat(10, 5)(w, r)
			}
			want(t, q.do("POST", tc.path, tc.body, "X-App", app), 200)
			if !admitted {
				t.Error("the call went nowhere")
			}
			q.uses(app, "images per day", tc.pictures)
		})
	}
}

func TestDurationsOfClientsAreNotTrusted(t *testing.T) {
	q := quotasOf(t, "", "untrusting", "limit 60 audio_seconds per day")
	answer = reply(http.StatusOK, `{"text":"hello"}`)
	want(t, q.transcribe("alice", wav(10_000), "X-Audio-Duration", "60"), 200)
	q.uses("alice", "audio_seconds per day", 10)
	want(t, q.transcribe("alice", []byte("no recording at all"), "X-Audio-Duration", "1"), 400)
}

func TestPicturesThatAreMade(t *testing.T) {
	const rule = "images per day (gpt-image*)"
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model gpt-image* {\nlimit 5 images per day\n}")
		draw := func(app string, n, made int) *httptest.ResponseRecorder {
			answer = reply(http.StatusOK, `{"created":1,"data":[`+strings.TrimSuffix(strings.Repeat(`{"b64_json":"AAAA"},`, made), ",")+`]}`)
			return q.do("POST", "/v1/images/generations", fmt.Sprintf(`{"model":"gpt-image-1","prompt":"a cat","n":%d}`, n), "X-App", app)
		}
		want(t, draw("alice", 4, 2), 200)
		q.uses("alice", rule, 2) // two were not made
		want(t, draw("alice", 4, 4), 429)
		want(t, draw("alice", 3, 3), 200)
		q.uses("alice", rule, 5)
		want(t, draw("alice", 1, 1), 429)
		want(t, draw("bob", 5, 5), 200)
		want(t, draw("carol", 6, 6), 400)
	})
}

// How many pictures a tool or a model that talks draws is not known before, but that
// none is left is.
func TestCallsThatMayDrawAreRefusedWhenNoPictureIsLeft(t *testing.T) {
	const (
		response = `{"id":"r","object":"response","status":"completed","model":"gpt-4.1","output":[{"type":"image_generation_call","id":"i","status":"completed","result":"AAAA"}],"usage":{"input_tokens":10,"output_tokens":10,"total_tokens":20}}`
		content  = `{"candidates":[{"content":{"role":"model","parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1290,"totalTokenCount":1300},"modelVersion":"gemini-2.5-flash-image"}`
		text     = `{"id":"r","object":"response","status":"completed","model":"gpt-4.1","output":[{"type":"message","content":[{"type":"output_text","text":"no"}]}],"usage":{"input_tokens":10,"output_tokens":10,"total_tokens":20}}`
	)
	for i, tc := range []struct {
		name, path, body, answer string
		statuses                 []int
		used                     float64
	}{
		{"a tool", "/v1/responses", `{"model":"gpt-4.1","input":"draw","tools":[{"type":"image_generation"}]}`, response, []int{200, 429}, 1},
		{"a model", "/v1beta/models/gemini-2.5-flash-image:generateContent", `{"contents":[{"parts":[{"text":"draw"}]}]}`, content, []int{200, 429}, 1},
		{"a tool that is not used", "/v1/responses", `{"model":"gpt-4.1","input":"hi","tools":[{"type":"image_generation"}]}`, text, []int{200, 200}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, app := quotasOf(t, "", "drawn", "limit 1 images per day"), "drawer"+strconv.Itoa(i)
			answer = reply(200, tc.answer)
			for _, status := range tc.statuses {
				want(t, q.do("POST", tc.path, tc.body, "X-App", app), status)
				q.uses(app, "images per day", tc.used)
			}
		})
	}
}

// How long a recording plays says nothing of a video.
func TestADurationIsTrustedOfItsKindAlone(t *testing.T) {
	global := "llm {\nstore memory {\npersist off\n}\nmeter {\ntrust_duration X-Audio-Duration X-Video-Duration\n}\n}"
	const body = `{"model":"qwen-vl","max_tokens":5,"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}]}]}`
	for i, tc := range []struct {
		lines  string
		said   []string
		status int
	}{
		{"limit 9 video_seconds per day", []string{"X-Audio-Duration", "0"}, 400},
		{"limit 9 video_seconds per day", []string{"X-Video-Duration", "5"}, 200},
		{"limit 9 video_seconds per day\nlimit 9 audio_seconds per day", []string{"X-Audio-Duration", "0"}, 400},
		{"limit 9 video_seconds per day\nlimit 9 audio_seconds per day", []string{"X-Audio-Duration", "0", "X-Video-Duration", "5"}, 200},
		{"limit 9 video_seconds per day shadow", nil, 200},
	} {
		q := quotasOf(t, global, "kinds", tc.lines)
		w := q.do("POST", "/v1/chat/completions", body, append(tc.said, "X-App", "kind"+strconv.Itoa(i))...)
		if w.Code != tc.status {
			t.Errorf("%s with %v: got %d, want %d: %s", tc.lines, tc.said, w.Code, tc.status, w.Body)
		}
	}
}

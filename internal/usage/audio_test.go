package usage

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestAudioIsRead(t *testing.T) {
	checkReadings(t, []reading{
		{
			"tokens", jsonHeader, `{"text":"Hello","usage":{"type":"tokens","input_tokens":10,"input_token_details":{"text_tokens":1,"audio_tokens":9},` +
				`"output_tokens":2,"total_tokens":12}}`,
			Report{Usage: Usage{Input: 10, Output: 2, AudioIn: 9}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"duration with a fraction", jsonHeader, `{"text":"Hello","usage":{"type":"duration","seconds":36.7805}}`,
			Report{Usage: Usage{AudioMillis: 36781}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"duration of silence", jsonHeader, `{"text":"","usage":{"type":"duration","seconds":3}}`,
			Report{Usage: Usage{AudioMillis: 3000}, Found: true, Complete: true},
		},
		{
			"duration beside the text", jsonHeader, `{"task":"transcribe","duration":8.470000267028809,"text":"Hello","segments":[]}`,
			Report{Usage: Usage{AudioMillis: 8470}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"duration as text", jsonHeader, `{"task":"translate","duration":"1.5","text":""}`,
			Report{Usage: Usage{AudioMillis: 1500}, Found: true, Complete: true},
		},
		{
			"usage outdoes the duration", jsonHeader, `{"task":"transcribe","duration":36.78,"text":"Hello","usage":{"type":"duration","seconds":37}}`,
			Report{Usage: Usage{AudioMillis: 37000}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"duration below zero, and no number", jsonHeader, `{"task":"transcribe","duration":"NaN","text":"Hello"}`,
			Report{Complete: true, Delivered: 5},
		},
		{"nothing but text", jsonHeader, `{"text":"Hello"}`, Report{Complete: true, Delivered: 5}},
		{"subtitles", http.Header{"Content-Type": {"text/vtt"}}, "WEBVTT\n\n00:00 --> 00:01\nHello\n", Report{Complete: true, Delivered: 30}},
		{
			"stream", streamHeader, events(`{"type":"transcript.text.delta","delta":"Hel"}`, `{"type":"transcript.text.delta","delta":"lo"}`,
				`{"type":"transcript.text.done","text":"Hello","usage":{"type":"duration","seconds":0.5}}`),
			Report{Usage: Usage{AudioMillis: 500}, Found: true, Complete: true, Delivered: 5},
		},
		{"stream without its end", streamHeader, events(`{"type":"transcript.text.delta","delta":"Hel"}`), Report{Delivered: 3}},
		{
			"speech", streamHeader, events(`{"type":"speech.audio.delta","audio":"AAAA"}`,
				`{"type":"speech.audio.done","usage":{"input_tokens":10,"output_tokens":2,"total_tokens":12}}`),
			Report{Usage: Usage{Input: 10, Output: 2, AudioOut: 2}, Found: true, Complete: true},
		},
		{"speech that counts zeros", streamHeader, events(`{"type":"speech.audio.delta","audio":"AAAA"}`,
			`{"type":"speech.audio.done","usage":{"input_tokens":0,"output_tokens":0}}`), Report{Complete: true}},
		{"bytes of audio", http.Header{"Content-Type": {"audio/pcm"}}, "\x00\x00\x00\x10\x00\x00\x00\x00data: {}", Report{Complete: true}},
	})
}

func TestImagesAreRead(t *testing.T) {
	usage := func(in, out int) string {
		return `"usage":{"input_tokens":` + strings.Repeat("1", in) + `,"output_tokens":` + strings.Repeat("1", out) + `}`
	}
	checkReadings(t, []reading{
		{
			"output tokens without details are pictures", jsonHeader, `{"data":[{"b64_json":"aGk="}],` + usage(2, 3) + `}`,
			Report{Usage: Usage{Input: 11, Output: 111, ImageOut: 111, Images: 1}, Found: true, Complete: true},
		},
		{
			"details", jsonHeader, `{"data":[{"b64_json":"aGk="}],"usage":{"input_tokens":9,"input_tokens_details":{"image_tokens":4},` +
				`"output_tokens":8,"output_tokens_details":{"image_tokens":6,"text_tokens":2}}}`,
			Report{Usage: Usage{Input: 9, Output: 8, ImageIn: 4, ImageOut: 6, Images: 1}, Found: true, Complete: true},
		},
		{
			"addresses", jsonHeader, `{"data":[{"url":"https://a","b64_json":null},{"url":"https://b"},{"url":"https://c"}]}`,
			Report{Usage: Usage{Images: 3}, Found: true, TokensUnknown: true, Complete: true},
		},
		{
			"base64 of an embedding is no picture", jsonHeader, `{"data":[{"embedding":"AAAA"}],"model":"e","usage":{"prompt_tokens":4,"total_tokens":4}}`,
			Report{Usage: Usage{Input: 4}, Found: true, Complete: true, Model: "e"},
		},
		{
			"stream of two", streamHeader, events(`{"type":"image_generation.partial_image","b64_json":"aGk="}`,
				`{"type":"image_generation.completed","b64_json":"aGk=",`+usage(1, 1)+`}`,
				`{"type":"image_generation.completed","b64_json":"aGk=",`+usage(2, 2)+`}`),
			Report{Usage: Usage{Input: 12, Output: 12, ImageOut: 12, Images: 2}, Found: true, Complete: true},
		},
		{"stream without its end", streamHeader, events(`{"type":"image_edit.partial_image","b64_json":"aGk="}`), Report{}},
		{
			"error in a stream", streamHeader, events(`{"type":"image_edit.partial_image","b64_json":"aGk="}`, `{"type":"error","error":{"code":"x"}}`),
			Report{Complete: true, Failed: true},
		},
	})
}

// TestUsageBehindAHugePictureIsRead has the usage behind 8 MiB of base64.
func TestUsageBehindAHugePictureIsRead(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgo=", 8<<20/12)
	tail := `","usage":{"input_tokens":10,"output_tokens":2,"input_tokens_details":{"image_tokens":7}}`
	want := Report{Usage: Usage{Input: 10, Output: 2, ImageIn: 7, ImageOut: 2, Images: 1}, Found: true, Complete: true}
	for name, test := range map[string]struct {
		kind http.Header
		body string
	}{
		"JSON":   {jsonHeader, `{"data":[{"b64_json":"` + picture + `"}],"x":"` + tail + `}`},
		"stream": {streamHeader, `data: {"type":"image_edit.completed","b64_json":"` + picture + tail + "}\n\n"},
	} {
		if got := readAll(test.kind, http.StatusOK, []byte(test.body), 16<<10); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// The last event of a response repeats what was asked, tools and all, before what was used.
func TestUsageBehindHugeToolsIsRead(t *testing.T) {
	tools := strings.Repeat(`{"type":"function","name":"f","parameters":{"usage":{"input_tokens":99999,"output_tokens":99999}}},`, 4<<20/100)
	last := `{"type":"response.completed","response":{"object":"response","model":"m","status":"completed","tools":[` + strings.TrimSuffix(tools, ",") +
		`],"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":10,"output_tokens":2,"total_tokens":12}}}`
	body := "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\nevent: response.completed\ndata: " + last + "\n\n"
	for _, size := range []int{0, 7, 16 << 10} {
		got := readAll(streamHeader, http.StatusOK, []byte(body), size)
		if got.Usage != (Usage{Input: 10, Output: 2}) || !got.Found || !got.Complete || got.Model != "m" {
			t.Errorf("in pieces of %d: got %+v", size, got)
		}
	}
}

func TestUsageAddsEveryField(t *testing.T) {
	var u, v Usage
	fields := reflect.ValueOf(&v).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(int64(i + 1))
	}
	u.Add(&v)
	u.Add(&v)
	for i := range fields.NumField() {
		if got := reflect.ValueOf(u).Field(i).Int(); got != 2*int64(i+1) {
			t.Errorf("%s: got %d, want %d", fields.Type().Field(i).Name, got, 2*(i+1))
		}
	}
}

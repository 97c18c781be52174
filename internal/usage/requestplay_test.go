package usage

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
)

// wavOf is a WAV of so many milliseconds, 8 kHz and 8 bits.
func wavOf(millis int) []byte {
	le := binary.LittleEndian
	b := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	b = le.AppendUint32(le.AppendUint32(b, 8000), 8000)
	b = append(b, 1, 0, 8, 0)
	b = le.AppendUint32(append(b, "data"...), uint32(8*millis))
	return append(b, strings.Repeat("\xff", 8*millis)...)
}

// filmOf is an MP4 with a track of video of so many milliseconds, and no more.
func filmOf(millis int) []byte {
	box := func(kind, data string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(data)+8))) + kind + data
	}
	none := strings.Repeat("\x00", 12)
	head := none + "\x00\x00\x03\xe8" + string(binary.BigEndian.AppendUint32(nil, uint32(millis))) + none
	return []byte(box("ftyp", "isom\x00\x00\x00\x00") +
		box("moov", box("trak", box("mdia", box("mdhd", head)+box("hdlr", none[:8]+"vide"+none)))))
}

func text64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// played is what a request tells of images, seconds and what of them nobody knows.
type played struct {
	images       int
	generated    int64
	audio, video int64
	unknown      bool
}

func playedOf(r *Request) played {
	return played{r.Images, r.GeneratedImages, r.AudioMillis, r.VideoMillis, r.DurationUnknown}
}

func TestInlineMediaAreMeasured(t *testing.T) {
	wav, film := text64(wavOf(1500)), text64(filmOf(2500))
	content := func(p string) string { return `{"messages":[{"role":"user","content":[` + p + `]}]}` }
	part := func(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }
	audio := Endpoint{API: OpenAIAudio}
	for _, tt := range []struct {
		name string
		ep   Endpoint
		body string
		want played
	}{
		{"text", epChat, content(`{"type":"text","text":"` + wav + `"}`), played{}},
		{"a recording in a chat", epChat, content(`{"type":"input_audio","input_audio":{"data":"` + wav + `","format":"wav"}}`), played{audio: 1500}},
		{"two of them", epChat, content(strings.Repeat(`{"input_audio":{"format":"wav","data":"`+wav+`"}},`, 2) + `{}`), played{audio: 3000}},
		{"with escaped slashes", epChat, content(`{"input_audio":{"data":"` + strings.ReplaceAll(wav, "/", `\/`) + `"}}`), played{audio: 1500}},
		{"as a data URL", epChat, content(`{"input_audio":{"data":"data:;base64,` + wav + `"}}`), played{audio: 1500}},
		{"as a string", Endpoint{API: MistralChat}, content(`{"type":"input_audio","input_audio":"` + wav + `"}`), played{audio: 1500}},
		{"by address in a chat", epChat, content(`{"input_audio":{"data":"https://x/a.wav"}}`), played{unknown: true}},
		{"in no known format", epChat, content(`{"input_audio":{"data":"AAAA","format":"wav"}}`), played{unknown: true}},
		{"given twice", epChat, content(`{"input_audio":{"data":"` + wav + `","data":"` + wav + `"}}`), played{unknown: true}},
		{"audio_url", epChat, content(`{"type":"audio_url","audio_url":{"url":"data:audio\/wav;base64,` + wav + `"}}`), played{audio: 1500}},
		{"audio_url that says it is an image", epChat, content(`{"audio_url":{"url":"data:image/png;base64,` + wav + `"}}`), played{images: 1, audio: 1500}},
		{"audio_url without base64", epChat, content(`{"audio_url":{"url":"data:audio/wav,xx"}}`), played{unknown: true}},
		{"remote audio_url", epChat, content(`{"audio_url":{"url":"https://x/a.wav"}}`), played{unknown: true}},
		{"video_url", epChat, content(`{"video_url":{"url":"data:video/mp4;base64,` + film + `"}}`), played{video: 2500}},
		{"remote video_url", epChat, content(`{"video_url":{"url":"https://x/a.mp4"}}`), played{unknown: true}},
		{"audio of an earlier answer", epChat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, played{unknown: true}},
		{"Gemini's recording", epGemini, part(`{"inline_data":{"data":"` + wav + `","mime_type":"audio/wav"}}`), played{audio: 1500}},
		{"Gemini's video", epGemini, part(`{"inlineData":{"mimeType":"video/mp4","data":"` + film + `"}}`), played{video: 2500}},
		{"a video that says it is a recording", epGemini, part(`{"inlineData":{"mimeType":"audio/mp4","data":"` + film + `"}}`), played{video: 2500}},
		{"a recording that says it is a document", epGemini, part(`{"inlineData":{"mimeType":"application/pdf","data":"` + wav + `"}}`), played{audio: 1500}},
		{"a document", epGemini, part(`{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0x"}}`), played{}},
		{"Gemini's stored picture", epGemini, part(`{"file_data":{"file_uri":"gs://b/o","mime_type":"image\/png"}}`), played{images: 1}},
		{"Gemini's stored document", epGemini, part(`{"fileData":{"mimeType":"application/pdf","fileUri":"gs://b/o"}}`), played{}},
		{"Gemini's stored video", epGemini, part(`{"fileData":{"mimeType":"video/mp4","fileUri":"gs://b/o"}}`), played{unknown: true}},
		{"Gemini's file of unknown kind", epGemini, part(`{"fileData":{"fileUri":"https://youtu.be/x"}}`), played{unknown: true}},
		{"an interaction's recording", epInteractions, `{"input":[{"type":"audio","data":"` + wav + `"}]}`, played{audio: 1500}},
		{"an interaction's video", epInteractions, `{"input":[{"type":"video","data":"` + film + `","mime_type":"video/mp4"}]}`, played{video: 2500}},
		{"an interaction's stored picture", epInteractions, `{"input":[{"type":"image","uri":"https://x"}]}`, played{images: 1}},
		{"an interaction's stored video", epInteractions, `{"input":[{"type":"video","uri":"https://x"}]}`, played{unknown: true}},
		{"Converse's video", epConverse, content(`{"video":{"format":"mp4","source":{"bytes":"` + film + `"}}}`), played{video: 2500}},
		{"Converse's stored picture", epConverse, content(`{"image":{"source":{"s3Location":{"uri":"s3://b/k"}}}}`), played{images: 1}},
		{"Converse's stored video", epConverse, content(`{"video":{"source":{"s3Location":{"uri":"s3://b/k"}}}}`), played{unknown: true}},
		{"a transcription in JSON", audio, `{"model":"w","input_audio":{"data":"` + wav + `","format":"wav"}}`, played{audio: 1500}},
		{"a transcription of a file in JSON", audio, `{"file":"` + wav + `"}`, played{audio: 1500}},
		{"a transcription by address", audio, `{"file":"https://x/a.wav"}`, played{unknown: true}},
		{"speech", audio, `{"model":"tts-1","input":"hello","voice":"alloy"}`, played{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, reqHeader, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := playedOf(r); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestImagesAreCountedBeforeTheCall(t *testing.T) {
	content := func(p string) string { return `{"messages":[{"role":"user","content":[` + p + `]}]}` }
	input := func(p string) string { return `{"input":[{"role":"user","content":[` + p + `]}]}` }
	predict := func(model string) Endpoint { return Endpoint{API: VertexPredict, Model: model} }
	images, ocr := Endpoint{API: OpenAIImages}, Endpoint{API: MistralOCR}
	for _, tt := range []struct {
		name string
		ep   Endpoint
		body string
		want played
	}{
		{"addresses in a chat", epChat, content(strings.Repeat(`{"type":"image_url","image_url":{"url":"https://x/y.png"}},`, 3) + `{}`), played{images: 3}},
		{"Mistral's plain address", Endpoint{API: MistralChat}, content(`{"type":"image_url","image_url":"https://x/y.png"}`), played{images: 1}},
		{"Responses by address", epResponses, input(`{"type":"input_image","image_url":"https://x"}`), played{images: 1}},
		{"Responses by id", epResponses, input(`{"type":"input_image","file_id":"file-1"},{"type":"input_file","file_id":"file-2"}`), played{images: 1}},
		{"Anthropic in every way", epMessages, content(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},` +
			`{"type":"image","source":{"type":"url","url":"https://x"}},{"source":{"type":"file","file_id":"f"},"type":"image"},` +
			`{"type":"document","source":{"type":"file","file_id":"f"}}`), played{images: 3}},
		{"Ollama", Endpoint{API: OllamaChat}, `{"messages":[{"content":"a","images":["AAAA","BBBB"]}]}`, played{images: 2}},
		{"OCR of a document", ocr, `{"document":{"type":"document_url","document_url":"https://x/y.pdf"}}`, played{images: 1}},
		{"OCR of an inline document", ocr, `{"document":{"document_url":"data:application/pdf;base64,JVBERi0x"}}`, played{images: 1}},
		{"OCR of a picture", ocr, `{"document":{"type":"image_url","image_url":"https://x/y.png"}}`, played{images: 1}},
		{"OCR of an inline picture", ocr, `{"document":{"image_url":"data:image/png;base64,AAAA"}}`, played{images: 1}},
		{"OCR of a picture as a document", ocr, `{"document":{"document_url":"data:image/png;base64,AAAA"}}`, played{images: 1}},
		{"OCR of a file", ocr, `{"document":{"type":"file","file_id":"f"}}`, played{images: 1}},

		{"images to edit by id", images, `{"prompt":"a","images":[{"file_id":"f"},{"image_url":"https://x"}],"mask":{"file_id":"g"}}`, played{images: 3, generated: 1}},
		{"embeddings of an image", epChat, content(`{"type":"image_embeds","image_embeds":"AAAA"}`), played{images: 1}},
		{"DashScope's frames", epChat, content(`{"type":"video","video":["https://x/1.jpg","https://x/2.jpg"]}`), played{unknown: true}},
		{"DashScope's video", epChat, content(`{"type":"video","video":"https://x/y.mp4"}`), played{unknown: true}},
		{"a video of DashScope that is inline", epChat, content(`{"video":"data:video/mp4;base64,` + text64(filmOf(2500)) + `"}`), played{video: 2500}},

		{"generation of one", images, `{"prompt":"a"}`, played{generated: 1}},
		{"generation of some", images, `{"prompt":"a","n":4}`, played{generated: 4}},
		{"generation of none", images, `{"prompt":"a","n":0}`, played{generated: 1}},
		{"Imagen", predict("imagen-4.0-generate-001"), `{"instances":[{"prompt":"a"}],"parameters":{"sampleCount":2}}`, played{generated: 2}},
		{"Imagen by default", predict("imagen-4.0-generate-001"), `{"instances":[{"prompt":"a"}],"parameters":{"sampleCount":null}}`, played{generated: 4}},
		{"embeddings of Vertex", predict("text-embedding-005"), `{"instances":[{"content":"a"}]}`, played{}},
		{"Titan", Endpoint{API: BedrockInvoke, Model: "amazon.titan-image-generator-v2:0"}, `{"imageGenerationConfig":{"numberOfImages":3}}`, played{generated: 3}},
		{"Stability", Endpoint{API: BedrockInvoke, Model: "stability.sd3-large-v1:0"}, `{"prompt":"a"}`, played{generated: 1}},
		{"a chat with choices", epChat, `{"n":4,"messages":[]}`, played{}},
		{"a tool that draws", epResponses, `{"input":"a","tools":[{"type":"image_generation"}]}`, played{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, reqHeader, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := playedOf(r); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestUploadsAreMeasured(t *testing.T) {
	wav := string(wavOf(1500))
	audio, images := Endpoint{API: OpenAIAudio}, Endpoint{API: OpenAIImages}
	for _, tt := range []struct {
		name string
		ep   Endpoint
		kind string
		body string
		want played
	}{
		{"a transcription", audio, formType, formBody("name=\"file\"; filename=\"a.wav\"\r\n\r\n"+wav+"\r\n", "name=\"model\"\r\n\r\nwhisper-1\r\n"), played{audio: 1500}},
		{"one that says it is a picture", audio, formType, formBody("name=\"file\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n" + wav + "\r\n"), played{images: 1, audio: 1500}},
		{"the sound of a video", audio, formType, formBody("name=\"file\"; filename=\"a.mp4\"\r\nContent-Type: video/mp4\r\n\r\n" + string(filmOf(2500)) + "\r\n"), played{audio: 2500}},
		{"what cannot be measured", audio, formType, formBody("name=\"file\"; filename=\"a.wma\"\r\n\r\nabcd\r\n"), played{unknown: true}},
		{"a recording elsewhere", audio, formType, formBody("name=\"url\"\r\n\r\nhttps://x/a.mp3\r\n"), played{unknown: true}},
		{"a file without a name", audio, formType, formBody("name=\"File\"\r\n\r\n" + wav + "\r\n"), played{unknown: true}},
		{"a recording as it is", audio, "audio/wav", wav, played{audio: 1500}},
		{"a recording for an unknown API", Endpoint{}, "audio/wav", wav, played{audio: 1500}},
		{"a recording in a form of an unknown API", Endpoint{}, formType, formBody("name=\"f\"; filename=\"a\"\r\n\r\n" + wav + "\r\n"), played{audio: 1500}},
		{"a document for an unknown API", Endpoint{}, formType, formBody("name=\"f\"; filename=\"a\"\r\nContent-Type: application/pdf\r\n\r\n%PDF\r\n"), played{}},
		{"text for an unknown API", Endpoint{}, "text/plain", "hello", played{}},
		{"an edit of pictures", images, formType, formBody("name=\"image[]\"; filename=\"a.png\"\r\n\r\nabcd\r\n", "name=\"image[]\"; filename=\"b.png\"\r\n\r\nabcd\r\n",
			"name=\"n\"\r\n\r\n3\r\n"), played{images: 2, generated: 3}},
		{"a variation", images, formType, formBody("name=\"image\"; filename=\"a.png\"\r\n\r\nabcd\r\n"), played{images: 1, generated: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, http.Header{"Content-Type": {tt.kind}}, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := playedOf(r); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestMeasuringDecodesLittle has a recording of 8 MiB, of which a window is decoded.
func TestMeasuringDecodesLittle(t *testing.T) {
	body := []byte(`{"messages":[{"content":[{"input_audio":{"data":"` + text64(wavOf(1<<20)) + `"}}]}]}`)
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r, err := ParseRequest(epChat, reqHeader, body); err != nil || r.AudioMillis != 1<<20 {
				b.Fatalf("got %+v, %v", r, err)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > 256<<10 {
		t.Errorf("allocated %d bytes for a body of %d", n, len(body))
	}
}

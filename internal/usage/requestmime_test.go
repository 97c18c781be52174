package usage

import (
	"errors"
	"testing"
)

func TestNoTypeHidesMedia(t *testing.T) {
	const png, webp, avif = "iVBORw0KGgo=", "UklGRgAAAABXRUJQVlA4", "AAAAHGZ0eXBhdmlmAAAA"
	content := func(p string) string { return `{"messages":[{"role":"user","content":[` + p + `]}]}` }
	part := func(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }
	inline := func(mime, data string) string {
		return part(`{"inlineData":{"mimeType":"` + mime + `","data":"` + data + `"}}`)
	}
	picture := func(url string) string { return content(`{"type":"image_url","image_url":{"url":"` + url + `"}}`) }
	source := func(s string) string { return content(`{"type":"image","source":` + s + `}`) }
	wav := text64(wavOf(1500))
	for _, tt := range []struct {
		name string
		ep   Endpoint
		body string
		want played
	}{
		{"an escape", epGemini, inline(`\u0069mage/png`, "AAAA"), played{images: 1}},
		{"an escape before an escaped slash", epGemini, inline(`im\u0061ge\/png`, "AAAA"), played{images: 1}},
		{"white space", epGemini, inline(`\t image/png `, "AAAA"), played{images: 1}},
		{"much white space", epGemini, inline(`\u00a0                                                                        image/png`, "AAAA"), played{images: 1}},
		{"capitals", epGemini, inline("IMAGE/PNG", "AAAA"), played{images: 1}},
		{"no slash", epGemini, inline("image", "AAAA"), played{images: 1}},
		{"no type at all", epGemini, part(`{"inlineData":{"data":"` + png + `"}}`), played{images: 1}},
		{"a type that tells nothing", epGemini, inline("application/octet-stream", webp), played{images: 1}},
		{"an image of another kind", epGemini, inline("application/x", avif), played{images: 1}},
		{"a JPEG with escapes", epGemini, inline("application/x", `\/9j\u002f4AAQ`), played{images: 1}},
		{"a document", epGemini, inline("application/pdf", "JVBERi0x"), played{}},
		{"a recording", epGemini, inline(`\u0061udio/x`, wav), played{audio: 1500}},
		{"a recording that cannot be measured", epGemini, inline(` aud\u0069o/x`, "AAAA"), played{unknown: true}},
		{"a video that cannot be measured", epGemini, inline("Video", "AAAA"), played{unknown: true}},
		{"a stored video", epGemini, part(`{"fileData":{"mimeType":"\u0076ideo/mp4","fileUri":"gs://b/o"}}`), played{unknown: true}},
		{"a file that may be anything", epGemini, part(`{"fileData":{"mimeType":"application/octet-stream","fileUri":"gs://b/o"}}`), played{unknown: true}},
		{"a video elsewhere", epGemini, part(`{"fileData":{"mimeType":"text/html","fileUri":"https://www.YouTube.com/watch?v=x"}}`), played{unknown: true}},
		{"two types alike", epGemini, part(`{"inlineData":{"mimeType":"image/png","mime_type":"image/webp","data":"AAAA"}}`), played{images: 1}},

		{"an image of no type", epChat, picture("data:;base64," + png), played{images: 1}},
		{"an image as text", epChat, picture("data:text/plain;base64," + png), played{images: 1}},
		{"an image as anything", epChat, picture("data:application/octet-stream;base64," + png), played{images: 1}},
		{"an escaped address", epChat, picture(`\u0064ata:image/png;base64,` + png), played{images: 1}},
		{"white space before an address", epChat, picture(" data:image/png;base64," + png), played{images: 1}},
		{"an image in a file", epChat, content(`{"file":{"file_data":"\u0064ata:image/png;base64,` + png + `"}}`), played{images: 1}},
		{"an image in a bare file", epChat, content(`{"file":{"file_data":"` + png + `"}}`), played{images: 1}},
		{"a recording in a file", epChat, content(`{"file":{"file_data":"data:application/x;base6\u0034,` + wav + `"}}`), played{audio: 1500}},

		{"Anthropic's image", epMessages, source(`{"type":"base64","media_type":"\u0069mage/png","data":"AAAA"}`), played{images: 1}},
		{"without a type", epMessages, source(`{"type":"base64","data":"AAAA"}`), played{images: 1}},
		{"as a document", epMessages, source(`{"type":"base64","media_type":"application/pdf","data":"` + png + `"}`), played{images: 1}},
		{"an interaction's image", epInteractions, `{"input":[{"type":"image","data":"AAAA","mime_type":"application/pdf"}]}`, played{images: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := playedOf(parse(t, tt.ep, tt.body)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTypesThatContradictEachOtherAreRefused(t *testing.T) {
	for _, types := range []string{
		`"mimeType":"image/png","mime_type":"text/plain"`,
		`"mimeType":"image/png","mimeType":"text/plain"`,
		`"mime_type":"application/pdf","mimeType":"video/mp4"`,
	} {
		body := `{"contents":[{"parts":[{"inlineData":{` + types + `,"data":"AAAA"}}]}]}`
		_, err := ParseRequest(epGemini, reqHeader, []byte(body))
		var bad *BadRequest
		if !errors.As(err, &bad) || bad.Param != "mime_type" {
			t.Errorf("%s: got %v", types, err)
		}
	}
}

func FuzzReqHead(f *testing.F) {
	for _, s := range []string{"", `\u0069mage/png`, `\`, `\u`, ` \t data:`, `\ud83d\ude00`, "\xc2\xa0image"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var buf [reqHeadSize]byte
		if head := reqHead(buf[:0], raw); len(head) > len(buf) {
			t.Errorf("%q has a head of %d bytes", raw, len(head))
		}
		reqMediaOf(raw)
		new(Request).pictured(raw)
	})
}

package usage

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

const formType = "multipart/form-data; boundary=XX"

// formBody builds a form; each part is a Content-Disposition, further header lines
// and, behind an empty line, the value.
func formBody(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--XX\r\nContent-Disposition: form-data; " + p)
	}
	return b.String() + "--XX--\r\n"
}

func TestFormsAreRead(t *testing.T) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for name, value := range map[string]string{"model": "gpt-image-1", "n": "3", "stream": "true", "prompt": "a cat"} {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"image[]", "image[]", "mask"} {
		f, err := w.CreateFormFile(name, "x.png")
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte("1234"))
	}
	w.Close()

	r, err := ParseRequest(Endpoint{}, http.Header{"Content-Type": {w.FormDataContentType()}}, buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "gpt-image-1" || r.Choices != 3 || !r.Stream || r.TextBytes != 5 {
		t.Errorf("got %+v", r)
	}
	if r.Media != 3 || r.Images != 3 || r.MediaBytes != 12 || r.External {
		t.Errorf("media: got %+v", r)
	}
}

func TestFormFilesAreMedia(t *testing.T) {
	tests := []struct {
		name, part string
		images     int
		audio      int64
		external   bool
	}{
		{"recording by field", "name=\"file\"; filename=\"a.mp3\"\r\n\r\nabcd", 0, 4, false},
		{"recording by type", "name=\"x\"; filename=\"a\"\r\nContent-Type: audio/wav\r\n\r\nabcd", 0, 4, false},
		{"picture by type", "name=\"file\"; filename=\"a\"\r\nContent-Type: image/png\r\n\r\nabcd", 1, 0, false},
		{"picture by field", "name=\"image\"; filename*=UTF-8''a\r\nContent-Type: application/octet-stream\r\n\r\nabcd", 1, 0, false},
		{"video", "name=\"file\"; filename=\"a\"\r\nContent-Type: video/mp4\r\n\r\nabcd", 0, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(Endpoint{}, http.Header{"Content-Type": {formType}}, []byte(formBody(tt.part+"\r\n")))
			if err != nil {
				t.Fatal(err)
			}
			if r.Images != tt.images || r.audioBytes != tt.audio || r.External != tt.external || r.MediaBytes != 4 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestFormsAreRefused(t *testing.T) {
	model := "name=\"model\"\r\n\r\na\r\n"
	tests := []struct {
		name, param, body string
	}{
		{"model twice", "model", formBody(model, model)},
		{"model in capitals", "model", formBody("name=\"Model\"\r\n\r\na\r\n")},
		{"model with a space", "model", formBody("name=\"model \"\r\n\r\na\r\n")},
		{"model as a file", "model", formBody("name=\"model\"; filename=\"m\"\r\n\r\na\r\n")},
		{"model encoded", "model", formBody("name=\"model\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=61\r\n")},
		{"model of a kilobyte", "model", formBody("name=\"model\"\r\n\r\n" + strings.Repeat("a", 1025) + "\r\n")},
		{"n twice", "n", formBody("name=\"n\"\r\n\r\n1\r\n", "name=\"n\"\r\n\r\n2\r\n")},
		{"n negative", "n", formBody("name=\"n\"\r\n\r\n-1\r\n")},
		{"n in fractions", "n", formBody("name=\"n\"\r\n\r\n1.5\r\n")},
		{"n huge", "n", formBody("name=\"n\"\r\n\r\n99999999999999999999\r\n")},
		{"stream unclear", "stream", formBody("name=\"stream\"\r\n\r\nmaybe\r\n")},
		{"an extended name", "", formBody("name*=UTF-8''model\r\n\r\na\r\n")},
		{"two names", "", formBody("name=\"x\"; name=\"model\"\r\n\r\na\r\n")},
		{"two dispositions", "", formBody("name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n")},
		{"no disposition", "", "--XX\r\nX: y\r\n\r\na\r\n--XX--\r\n"},
		{"no end", "", "--XX\r\nContent-Disposition: form-data; " + model},
		{"another boundary", "", "--YY\r\nContent-Disposition: form-data; " + model + "--YY--\r\n"},
		{"a preamble", "", "\r\n{}\r\n" + formBody(model)},
		{"more behind the end", "", formBody(model) + formBody(model)},
		{"a boundary behind a bare newline", "", formBody("name=\"x\"\r\n\r\na\n--XX\nContent-Disposition: form-data; " + model)},
		{"not a form", "", `{"model":"a"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if bad := refused(t, Endpoint{}, http.Header{"Content-Type": {formType}}, tt.body); bad.Param != tt.param {
				t.Errorf("param %q, want %q (%s)", bad.Param, tt.param, bad.Message)
			}
		})
	}
	for _, ct := range []string{"multipart/form-data", "multipart/form-data; boundary=XX; boundary=YY", "multipart/form-data; boundary=\"XX"} {
		refused(t, Endpoint{}, http.Header{"Content-Type": {ct}}, formBody(model))
	}
}

func FuzzParseForm(f *testing.F) {
	f.Add([]byte(formBody("name=\"model\"\r\n\r\na\r\n", "name=\"file\"; filename=\"f\"\r\n\r\nb\r\n")))
	f.Add([]byte("--XX\r\n\r\n--XX--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(Endpoint{}, http.Header{"Content-Type": {formType}}, body)
		if err != nil || len(body) == 0 {
			return
		}
		form, err := multipart.NewReader(bytes.NewReader(body), "XX").ReadForm(1 << 20)
		if err != nil {
			return
		}
		if models := form.Value["model"]; len(models) > 1 || len(models) == 1 && models[0] != r.Model {
			t.Errorf("read model %q, the standard library %q", r.Model, models)
		}
	})
}

package pricing

import (
	"encoding/binary"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// exchange is a call as client and upstream see it.
type exchange struct {
	o          Options // without a table: the built-in one
	host, path string
	contents   string // type of the body; JSON if it is empty
	body       string
	kind       string // type of the answer; JSON if it is empty
	answer     string
	cut        bool // the connection breaks behind it
}

const openAI = "api.openai.com"

// bill is what the call costs in the end.
func (x *exchange) bill(t *testing.T) (usd money.USD, status meter.CostStatus) {
	t.Helper()
	if x.o.Table == nil {
		x.o.Table = Builtin
	}
	r := httptest.NewRequest(http.MethodPost, x.path, strings.NewReader(x.body))
	r.Header.Set("Content-Type", "application/json")
	if x.contents != "" {
		r.Header.Set("Content-Type", x.contents)
	}
	repl := caddy.NewReplacer()
	repl.Set("http.reverse_proxy.upstream.host", x.host)
	r = caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), nil)
	c := meter.New().Call(r)
	if err := c.Inspect(r); err != nil {
		t.Fatal(err)
	}
	c.Meter(r)
	c.Price(pricer(t, x.o))
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		if x.kind != "" {
			w.Header().Set("Content-Type", x.kind)
		}
		_, _ = io.WriteString(w, x.answer)
		if x.cut {
			panic(http.ErrAbortHandler)
		}
		return nil
	})
	func() {
		defer func() { _ = recover() }()
		if err := c.Serve(httptest.NewRecorder(), r, next); err != nil {
			t.Error(err)
		}
	}()
	status = meter.CostStatus(meter.Var(r, meter.VarCostStatus))
	if status == meter.CostUnpriced {
		return 0, status
	}
	usd, err := money.ParseUSD(meter.Var(r, meter.VarCost))
	if err != nil {
		t.Fatal(err)
	}
	return usd, status
}

func usd(t *testing.T, s string) money.USD {
	t.Helper()
	v, err := money.ParseUSD(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPicturesCostByNumberSizeAndQuality(t *testing.T) {
	const one = `{"b64_json":"aGk="}`
	for _, tc := range []struct {
		name, body string
		pictures   int
		want       string
	}{
		{"high definition", `"model":"dall-e-3","size":"1024x1792","quality":"hd"`, 1, "0.12"},
		{"large", `"model":"dall-e-3","size":"1024x1792","quality":"standard"`, 1, "0.08"},
		{"small", `"model":"dall-e-2","size":"256x256"`, 1, "0.016"},
		{"neither named", `"model":"dall-e-3"`, 1, "0.04"},
		{"high quality", `"model":"gpt-image-1","size":"1536x1024","quality":"high"`, 1, "0.25"},
		{"low quality", `"model":"gpt-image-1","size":"1024x1024","quality":"low"`, 1, "0.011"},
		{"of a later model", `"model":"gpt-image-1.5","size":"1536x1024","quality":"high"`, 1, "0.2"},
		{"ten", `"model":"gpt-image-1","n":10,"size":"1536x1024","quality":"high"`, 10, "2.5"},
		{"fewer than were asked for", `"model":"gpt-image-1","n":10,"size":"1536x1024","quality":"high"`, 4, "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := exchange{
				host: openAI, path: "/v1/images/generations", body: `{` + tc.body + `,"prompt":"a cat"}`,
				answer: `{"data":[` + strings.Repeat(one+",", tc.pictures-1) + one + `]}`,
			}
			if got, status := x.bill(t); got != usd(t, tc.want) || status != meter.CostEstimated {
				t.Errorf("costs %s (%s), want %s", got, status, tc.want)
			}
		})
	}
}

func TestPicturesOfUnknownTokensCostNoLessThanTheVendors(t *testing.T) {
	const body = `{"model":"gpt-image-1","n":2,"prompt":"a cat"}`
	x := exchange{host: openAI, path: "/v1/images/generations", body: body, answer: `{"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]}`}
	if got, _ := x.bill(t); got < usd(t, "0.334") || got > usd(t, "0.57") {
		t.Errorf("two of a quality that the vendor chose cost %s", got)
	}
	x = exchange{
		host: openAI, path: "/v1/images/generations", body: strings.Replace(body, "{", `{"stream":true,`, 1), kind: "text/event-stream", cut: true,
		answer: "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"aGk=\"}\n\n",
	}
	if got, status := x.bill(t); got < usd(t, "0.334") || status != meter.CostEstimated {
		t.Errorf("two that were cut cost %s (%s)", got, status)
	}
}

func TestSpeechCostsByItsText(t *testing.T) {
	speak := func(model, text string) *exchange {
		return &exchange{
			host: openAI, path: "/v1/audio/speech", body: `{"model":"` + model + `","voice":"alloy","input":"` + text + `"}`,
			kind: "audio/mpeg", answer: "ID3",
		}
	}
	text := strings.Repeat("All work and no play makes Jack a dull boy. ", 170)
	for _, tc := range []struct{ name, model, text, least, most string }{
		// about ten minutes, at $0.015 each
		{"by tokens of sound", "gpt-4o-mini-tts", text, "0.15", "0.25"},
		{"a word", "gpt-4o-mini-tts", "Hi", "0.0004", "0.002"},
		{"by the character", "tts-1", text, "0.1122", "0.1122"},
	} {
		got, status := speak(tc.model, tc.text).bill(t)
		if got < usd(t, tc.least) || got > usd(t, tc.most) || status != meter.CostEstimated {
			t.Errorf("%s: costs %s (%s), want %s to %s", tc.name, got, status, tc.least, tc.most)
		}
	}
}

func TestWhatIsPresumedOfModelsWithoutAPrice(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		host string
		want string
	}{
		{"of a provider that tells costs", Options{Provider: "OpenRouter", Unknown: Unpriced}, "10.0.0.5", "0.09"},
		{"by its host", Options{Unknown: Unpriced}, "openrouter.ai", "0.09"},
		{"of a budget that only reports", Options{}, "openrouter.ai", "0.09"},
		{"of a provider that tells none", Options{Unknown: Unpriced}, openAI, "0"},
		{"of one that nobody knows", Options{Unknown: Unpriced}, "10.0.0.5", "0"},
		{"where such calls are refused", Options{Unknown: Deny}, "openrouter.ai", "0"},
	} {
		tc.o.Table = Builtin
		q := million("maker/brand-new")
		q.Host = tc.host
		if got := pricer(t, tc.o).Presume(q, 1000, 1000); got != usd(t, tc.want) {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := pricer(t, Options{Table: Builtin, Provider: "xai"}).Presume(million("m"), 1<<62, 1<<62); got < money.Dollar {
		t.Errorf("more than can be counted is %s", got)
	}
}

func TestPicturesOfAToolAreNotFree(t *testing.T) {
	const (
		request = `{"model":"gpt-5","input":"two cats","tools":[{"type":"image_generation"}]}`
		none    = `{"object":"response","status":"completed","model":"gpt-5","usage":{"input_tokens":100,"output_tokens":100,"total_tokens":200}}`
		drawn   = `{"object":"response","status":"completed","model":"gpt-5","output":[{"type":"image_generation_call","status":"completed","result":"aGk="},` +
			`{"type":"image_generation_call","status":"completed","result":"aGk="}],"usage":{"input_tokens":100,"output_tokens":100,"total_tokens":200}`
		counted = `,"tool_usage":{"image_gen":{"input_tokens":100,"output_tokens":12000,"total_tokens":12100}}`
	)
	for _, tc := range []struct {
		name, answer, least, most string
		status                    meter.CostStatus
	}{
		{"none", none, "0.001125", "0.001125", meter.CostCalculated},
		{"without tokens", drawn + `}`, "0.335", "0.6", meter.CostEstimated},
		{"without tokens, of a named model", drawn + `,"tools":[{"type":"image_generation","model":"gpt-image-1"}]}`, "0.335", "0.6", meter.CostEstimated},
		{"with tokens", drawn + counted + `}`, "0.48", "0.4832", meter.CostCalculated},
	} {
		x := exchange{host: openAI, path: "/v1/responses", body: request, answer: tc.answer}
		if got, status := x.bill(t); got < usd(t, tc.least) || got > usd(t, tc.most) || status != tc.status {
			t.Errorf("%s: costs %s (%s), want %s to %s (%s)", tc.name, got, status, tc.least, tc.most, tc.status)
		}
	}
}

// form is the upload of a recording.
func form(t *testing.T, file []byte, format string) (contents, body string) {
	t.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	for _, field := range [][2]string{{"model", "whisper-1"}, {"response_format", format}} {
		if err := w.WriteField(field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.CreateFormFile("file", "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(file); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return w.FormDataContentType(), b.String()
}

func TestTheFormatOfATranscriptDoesNotChangeItsCost(t *testing.T) {
	// ten seconds of silence: 8 kHz, one channel of a byte
	wav := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x80\x38\x01\x00")
	wav = append(wav, make([]byte, 80_000)...)
	binary.LittleEndian.PutUint32(wav[4:], uint32(len(wav)-8))
	for _, tc := range []struct {
		name, format, kind, answer string
		file                       []byte
		want                       string
	}{
		{"measured", "text", "text/plain", "hello there", wav, "0.001"},
		{"measured, as subtitles", "srt", "text/plain", "1\n00:00:00,000 --> 00:00:01,000\nHi\n", wav, "0.001"},
		{"told by the answer", "verbose_json", "", `{"text":"hi","usage":{"type":"duration","seconds":10}}`, wav, "0.001"},
		// at 6 kbit/s, as low as speech goes
		{"of no known format", "text", "text/plain", "hello there", make([]byte, 75_000), "0.01"},
	} {
		contents, body := form(t, tc.file, tc.format)
		x := exchange{host: openAI, path: "/v1/audio/transcriptions", contents: contents, body: body, kind: tc.kind, answer: tc.answer}
		if got, _ := x.bill(t); got != usd(t, tc.want) {
			t.Errorf("%s: costs %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAPriceTellsItsBasis(t *testing.T) {
	p := Default()
	for _, tc := range []struct {
		model, host, key string
		approx           bool
	}{
		{"gpt-4o", openAI, "gpt-4o", false},
		{"gpt-4o", "10.0.0.5", "gpt-4o", true}, // whose it is nobody knows
		{"nobody-has-it", openAI, "", false},
	} {
		q := million(tc.model)
		q.Host = tc.host
		q.API = usage.UnknownAPI
		if p.Price(q); q.Basis.Key != tc.key || q.Basis.Approx != tc.approx {
			t.Errorf("%s at %s: %+v", tc.model, tc.host, q.Basis)
		}
	}
}

package pricing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
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
	if got, _ := x.bill(t); got < usd(t, "0.334") || got > usd(t, "0.55") {
		t.Errorf("two of a quality that the vendor chose cost %s", got)
	}
	x = exchange{host: openAI, path: "/v1/images/generations", body: strings.Replace(body, "{", `{"stream":true,`, 1), kind: "text/event-stream", cut: true,
		answer: "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"aGk=\"}\n\n"}
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

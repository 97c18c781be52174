package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// goRequest is what an upstream in Go would read: names in any case, the last wins.
type goRequest struct {
	Model               *string `json:"model"`
	Stream              *bool   `json:"stream"`
	N                   *number `json:"n"`
	BestOf              *number `json:"best_of"`
	MaxTokens           *number `json:"max_tokens"`
	MaxCompletionTokens *number `json:"max_completion_tokens"`
	MaxOutputTokens     *number `json:"max_output_tokens"`
	Background          *bool   `json:"background"`
	ServiceTier         *any    `json:"service_tier"`
	StreamOptions       *struct {
		IncludeUsage *bool `json:"include_usage"`
	} `json:"stream_options"`
}

// number is a JSON number as text.
type number string

func (n *number) UnmarshalJSON(b []byte) error {
	*n = number(b)
	return nil
}

// agrees reports whether an accepted body reads the same with encoding/json.
func agrees(t *testing.T, r *Request, body []byte) {
	t.Helper()
	if !json.Valid(body) {
		t.Fatalf("accepted %q, which is not JSON", body)
	}
	// The two ways that parsers resolve names: any case, or exactly; the last wins.
	var folded goRequest
	if err := json.Unmarshal(body, &folded); err != nil {
		t.Fatalf("accepted %q, which encoding/json does not: %v", body, err)
	}
	var exact map[string]json.RawMessage
	if err := json.Unmarshal(body, &exact); err != nil {
		t.Fatal(err)
	}

	var model string
	if folded.Model != nil {
		model = *folded.Model
	}
	var exactModel string
	if raw := exact["model"]; raw != nil {
		if err := json.Unmarshal(raw, &exactModel); err != nil {
			t.Fatal(err)
		}
	}
	if r.Model != model || r.Model != exactModel {
		t.Fatalf("model %q, encoding/json %q and %q: %q", r.Model, model, exactModel, body)
	}
	is := func(b *bool) bool { return b != nil && *b }
	if r.Stream != is(folded.Stream) || r.Stream != (string(exact["stream"]) == "true") {
		t.Fatalf("stream %t differs: %q", r.Stream, body)
	}
	if r.Background != is(folded.Background) {
		t.Fatalf("background %t differs: %q", r.Background, body)
	}
	asked := folded.StreamOptions != nil && is(folded.StreamOptions.IncludeUsage)
	if r.UsageAsked != asked {
		t.Fatalf("include_usage %t differs: %q", r.UsageAsked, body)
	}
	tier := ""
	if folded.ServiceTier != nil {
		tier, _ = (*folded.ServiceTier).(string)
	}
	if got := r.Hints.ServiceTier; tier != "" && len(tier) <= maxTerm && utf8.ValidString(got) && got != tier {
		t.Fatalf("service tier %q, encoding/json %q: %q", got, tier, body)
	}
	value := func(n *number) int64 {
		if n == nil || *n == "null" {
			return 0
		}
		v, ok := reqWhole([]byte(*n))
		if !ok {
			t.Fatalf("accepted a number %s: %q", *n, body)
		}
		return v
	}
	limit := max(value(folded.MaxTokens), value(folded.MaxCompletionTokens), value(folded.MaxOutputTokens))
	if r.API == UnknownAPI && r.Cap != 0 {
		t.Fatalf("cap %d at an unknown API: %q", r.Cap, body)
	}
	if known := folded.MaxTokens != nil && *folded.MaxTokens != "null" || folded.MaxCompletionTokens != nil && *folded.MaxCompletionTokens != "null"; r.API == OpenAIChat && known &&
		exact["n_predict"] == nil && !bytes.Contains(body, []byte(`\`)) && r.Cap != limit {
		t.Fatalf("cap %d, want %d: %q", r.Cap, limit, body)
	}
	if choices := max(value(folded.N), value(folded.BestOf), 1); r.Choices < choices {
		t.Fatalf("choices %d, want %d: %q", r.Choices, choices, body)
	}
	if raw := int64(len(body)); r.TextBytes > 2*raw+16 || r.TextBytes < 0 || r.MediaBytes > raw || r.Media < r.Images {
		t.Fatalf("%+v of %d bytes: %q", r, raw, body)
	}
	if r.PromptTokens() > r.PromptWorst() {
		t.Fatalf("expected %d, at most %d: %q", r.PromptTokens(), r.PromptWorst(), body)
	}
}

var fuzzSeeds = []string{
	`{}`,
	`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
	`{"model":"m","Model":"n"}`,
	`{"service_tier":"flex","size":"1x1","tools":[{"type":"web_search","search_context_size":"low"}],"speed":1}`,
	`{"Service_tier":"pri\u006frity","web_search_options":{"search_context_size":"high"},"input":"\ud83c\udf0a"}`,
	`{"mod\u0065l":"m","n":2e0,"max_tokens":16.0,"best_of":null}`,
	`{"ſtream":true}`,
	`{"stream":true,"stream_options":{"include_usage":false,"x":[{"y":"\ud83d\ude00"}]}}`,
	`{"input":[{"type":"input_image","image_url":"data:image\/png;base64,AA"},{"id":"a"}],"max_output_tokens":7}`,
	`{"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA"}},{"type":"tool_use","input":{"a":[1,2]}}]}]}`,
	`{"tools":[{"type":"namespace","tools":[{"type":"mcp"}]}],"prompt":[[1,2],[3]],"max_completion_tokens":9007199254740993}`,
	"{\"a\":\"\xff\",\"b\":-0.0e+1}",
	`{"a":1}{"b":2}`,
	`[{"model":"m"}]`,
	"\ufeff{}",
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(uint8(0), []byte(s))
	}
	f.Fuzz(func(t *testing.T, api uint8, body []byte) {
		if len(body) == 0 {
			return
		}
		r, err := ParseRequest(Endpoint{API: API(api) % (LMStudioChat + 1)}, reqHeader, body)
		switch {
		case err != nil:
		case r.API <= AnthropicMessages:
			agrees(t, r, body)
		case !json.Valid(body):
			t.Fatalf("accepted %q, which is not JSON", body)
		case r.PromptTokens() > r.PromptWorst() || r.Cap < 0 || r.Choices < 0 || r.Media < r.Images:
			t.Fatalf("%+v: %q", r, body)
		}
	})
}

func FuzzAskUsage(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add([]byte(s), int64(7))
	}
	f.Fuzz(func(t *testing.T, body []byte, limit int64) {
		for _, ep := range []Endpoint{epChat, epCompletions, epResponses, epMessages} {
			r, err := ParseRequest(ep, nil, body)
			if err != nil {
				return
			}
			edited, asked := r.AskUsage(body)
			edited, capped := r.WriteCap(edited, limit)
			again, err := ParseRequest(ep, nil, edited)
			if err != nil {
				t.Fatalf("%q was edited to %q, which is refused: %v", body, edited, err)
			}
			agrees(t, again, edited)
			if asked && !again.UsageAsked || capped && again.Cap < limit {
				t.Fatalf("%q was edited to %q, in vain", body, edited)
			}
			got, want := *again, *r
			got.edit, want.edit = reqEdit{}, reqEdit{}
			want.UsageAsked = want.UsageAsked || asked
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q was edited to %q: parsed %+v, want %+v", body, edited, got, want)
			}
		}
	})
}

// respell draws a spelling of a member name that some parser takes for it.
func respell(t *rapid.T, name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch rapid.IntRange(0, 3).Draw(t, "spelling") {
		case 0:
			b.WriteString(strings.ToUpper(string(c)))
		case 1:
			const hex = "0123456789abcdef"
			b.WriteString(`\u00` + string(hex[c>>4]) + string(hex[c&15]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func TestInjectedDuplicatesAreRefused(t *testing.T) {
	values := map[string]string{
		"model": `"m"`, "stream": "true", "stream_options": "{}", "n": "1", "best_of": "1", "max_tokens": "1",
		"max_completion_tokens": "1", "max_output_tokens": "1", "background": "false", "n_predict": "1",
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{
			"model", "stream", "stream_options", "n", "best_of", "max_tokens", "max_completion_tokens",
			"max_output_tokens", "background", "n_predict",
		}).Draw(t, "name")
		members := []string{`"` + name + `":` + values[name], `"` + respell(t, name) + `":` + values[name]}
		for range rapid.IntRange(0, 3).Draw(t, "others") {
			doc, err := json.Marshal(drawJSON(t, 3))
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, `"messages":`+string(doc))
		}
		body := "{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), ",") + "}"
		_, err := ParseRequest(epChat, reqHeader, []byte(body))
		var bad *BadRequest
		if !errors.As(err, &bad) || bad.Param != name {
			t.Fatalf("ParseRequest(%s) = %v", body, err)
		}
	})
}

func TestAnyDocumentIsReadAlike(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		doc := map[string]any{"model": rapid.String().Draw(rt, "model"), "messages": drawJSON(rt, 4), "x": drawJSON(rt, 4)}
		body, err := json.Marshal(doc)
		if err != nil {
			rt.Fatal(err)
		}
		r, err := ParseRequest(epChat, reqHeader, body)
		if err != nil {
			rt.Fatalf("ParseRequest(%s) = %v", body, err)
		}
		agrees(t, r, body)
	})
}

// benchBody is a chat of about size bytes: code and prose, an escape every few words.
func benchBody(size int) []byte {
	const text = `The quick brown fox jumps over the lazy dog; then it \"rests\".\n` + "while the dog, in turn, looks for another fox to chase. "
	var b strings.Builder
	b.WriteString(`{"messages":[{"role":"system","content":"You are helpful."}`)
	for b.Len() < size-300 {
		b.WriteString(`,{"role":"user","content":"`)
		for n := 0; n < min(4000, size/3); n += len(text) {
			b.WriteString(text)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],`)
	b.WriteString(`"model":"gpt-5-mini","stream":true,"max_completion_tokens":1000}`)
	return []byte(b.String())
}

func BenchmarkParseRequest(b *testing.B) {
	image := `{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("QUJD", 1<<18) + `"}}]}]}`
	for _, bb := range []struct {
		name string
		body []byte
	}{{"1KB", benchBody(1 << 10)}, {"20KB", benchBody(20 << 10)}, {"1MB", benchBody(1 << 20)}, {"1MB_image", []byte(image)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseRequest(epChat, reqHeader, bb.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAskUsage(b *testing.B) {
	body := benchBody(20 << 10)
	r, err := ParseRequest(epChat, reqHeader, body)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c := *r
		if _, ok := c.AskUsage(body); !ok {
			b.Fatal("not edited")
		}
	}
}

func TestParseRequestAllocatesLittle(t *testing.T) {
	body := benchBody(20 << 10)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ParseRequest(epChat, reqHeader, body); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

// Package costcase reads the calls whose exact cost is known, for the tests of those that
// read, price and charge them.
package costcase

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Case is a call as its provider answers it, the prices of its model, and what it costs.
type Case struct {
	ID, Provider, Model string
	// API is a name of apis, or batch_line: a line of a batch's results.
	API string
	// Request and Response are what decides the price; the rest is as the API has it. The
	// member input_characters stands for a text of so many.
	Request, Response map[string]json.RawMessage
	// Key and Prices are a row of LiteLLM's table; Key is empty where the provider itself
	// says the cost.
	Key    string `json:"price_key"`
	Prices map[string]json.RawMessage
	// At is when the call was made.
	At time.Time
	// Terms are how much there is of what has a price, as the file has it.
	Terms json.RawMessage
	// Reported and CostUSD are what the provider says that it costs, in dollars.
	Reported string `json:"provider_reported"`
	CostUSD  string `json:"cost_usd"`
	// Want is what it costs, in dollars with twelve places.
	Want string `json:"expected_cost_usd"`
}

// Read reads the cases of a file: a list of them, or an object that has one as `rows`.
func Read(tb testing.TB, file string) (cases []*Case) {
	tb.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var list any = &cases
	if strings.HasPrefix(string(raw), "{") {
		list = &struct{ Rows *[]*Case }{&cases}
	}
	if err := json.Unmarshal(raw, list); err != nil {
		tb.Fatal(err)
	}
	return cases
}

// apis are the paths of the APIs, what a question asks beside the model, and what stands
// around the usage in an answer to it, in which a %q is the model.
var apis = map[string]struct{ path, ask, answer string }{
	"chat_completions": {
		"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`,
		`{"object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}`,
	},
	"responses":           {"/v1/responses", `{"input":"hi"}`, `{"object":"response","status":"completed","model":%q}`},
	"images":              {"/v1/images/generations", `{"prompt":"a cat"}`, `{"model":%q}`},
	"audio_transcription": {"/v1/audio/transcriptions", `{}`, `{"model":%q,"text":"Hi"}`},
	"audio_speech":        {"/v1/audio/speech", `{}`, ``},
	"embeddings":          {"/v1/embeddings", `{"input":"hi"}`, `{"object":"list","model":%q,"data":[{"embedding":[0.5]}]}`},
	"messages": {
		"/v1/messages", `{"max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`,
		`{"type":"message","model":%q,"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}`,
	},
	"generate_content": {
		"/v1beta/models/{model}:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}]}`,
		`{"modelVersion":%q,"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}`,
	},
	"rerank": {"/v2/rerank", `{"query":"hi","documents":["a"]}`, `{"id":%q,"results":[{"index":0}]}`},
	"ocr": {
		"/v1/ocr", `{"document":{"type":"document_url","document_url":"https://a.example/b.pdf"}}`,
		`{"model":%q,"pages":[{"markdown":"Hi"}]}`,
	},
	"bedrock_converse": {
		"/model/{model}/converse", `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
		`{"trace":%q,"output":{"message":{"content":[{"text":"Hi"}]}},"stopReason":"end_turn"}`,
	},
}

// shape is the API whose documents a case has: those of a batch's line are a chat's.
func (c *Case) shape() string {
	if c.API == "batch_line" {
		return "chat_completions"
	}
	return c.API
}

// Path is what is called.
func (c *Case) Path() string { return strings.Replace(apis[c.shape()].path, "{model}", c.Model, 1) }

// Body is the call's body, as JSON.
func (c *Case) Body(tb testing.TB) []byte {
	tb.Helper()
	api := apis[c.shape()]
	body := members(tb, api.ask)
	if !strings.Contains(api.path, "{model}") {
		body["model"] = encode(tb, c.Model)
	}
	maps.Copy(body, c.Request)
	if count, ok := body["input_characters"]; ok {
		delete(body, "input_characters")
		n, err := strconv.Atoi(string(count))
		if err != nil || n < 1 {
			tb.Fatalf("%s: %s characters: %v", c.ID, count, err)
		}
		const wide = "\U0001F30A" // two units of UTF-16, and one character
		body["input"] = encode(tb, strings.Repeat("ü", n-utf8.RuneCountInString(wide))+wide)
	}
	return encode(tb, body)
}

// Answer is the answer in one piece, as JSON; nil for speech, which is none.
func (c *Case) Answer(tb testing.TB) []byte {
	tb.Helper()
	around := apis[c.shape()].answer
	if around == "" {
		return nil
	}
	all := members(tb, fmt.Sprintf(around, c.Model))
	maps.Copy(all, c.Response)
	if images, ok := all["data"]; ok && c.API == "images" {
		all["data"] = json.RawMessage(strings.ReplaceAll(string(images), "{}", `{"b64_json":"aGk="}`))
	}
	return encode(tb, all)
}

// Table is the case's prices, in LiteLLM's form.
func (c *Case) Table(tb testing.TB) []byte {
	tb.Helper()
	row := map[string]json.RawMessage{"litellm_provider": encode(tb, c.Provider)}
	maps.Copy(row, c.Prices)
	if c.API == "images" {
		row["mode"] = encode(tb, "image_generation")
	}
	rows := map[string]any{c.Key: row}
	if c.Key != c.Model && c.Key == "gpt-4o" { // whose undated row lends its services to the dated one
		dated := maps.Clone(row)
		maps.DeleteFunc(dated, func(name string, _ json.RawMessage) bool { return strings.HasSuffix(name, "_priority") })
		rows[c.Model] = dated
	}
	return encode(tb, rows)
}

func members(tb testing.TB, document string) map[string]json.RawMessage {
	tb.Helper()
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(document), &all); err != nil {
		tb.Fatal(err)
	}
	return all
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// costCase is a call as its provider answers it, the prices of its model and the exact
// cost.
type costCase struct {
	ID, Provider, API, Model string
	Key                      string `json:"price_key"`
	Request, Response        map[string]any
	Prices                   map[string]any
	Reported                 string `json:"provider_reported"`
	Want                     string `json:"expected_cost_usd"`
}

func costCases(t *testing.T) []*costCase {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "llmcost", "prices", "testdata", "cost.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases struct{ Rows []*costCase }
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.Rows {
		if c.API == "batch_line" { // a body like any other, served as the words say
			c.API = "chat_completions"
			c.Response["service_tier"] = "batch"
		}
	}
	return cases.Rows
}

// object is JSON.
type object = map[string]any

// merged is a document of an API with what a case says of it.
func (c *costCase) merged(around object) object {
	all := maps.Clone(around)
	maps.Copy(all, c.Response)
	return all
}

// document is the answer in one piece.
func (c *costCase) document() (contentType string, body []byte) {
	around := map[string]object{
		"chat_completions": {
			"object": "chat.completion", "model": c.Model,
			"choices": []object{{"index": 0, "message": object{"content": "Hi"}, "finish_reason": "stop"}},
		},
		"responses":           {"object": "response", "status": "completed", "model": c.Model},
		"images":              {},
		"audio_transcription": {"text": "Hi"},
		"embeddings":          {"object": "list", "model": c.Model, "data": []object{{"embedding": []float64{0.5}}}},
		"messages":            {"type": "message", "model": c.Model, "content": []object{{"type": "text", "text": "Hi"}}, "stop_reason": "end_turn"},
		"generate_content": {
			"modelVersion": c.Model,
			"candidates":   []object{{"content": object{"parts": []object{{"text": "Hi"}}}, "finishReason": "STOP"}},
		},
		"rerank":           {"id": "r", "results": []object{{"index": 0}}},
		"ocr":              {"model": c.Model, "pages": []object{{"markdown": "Hi"}}},
		"bedrock_converse": {"output": object{"message": object{"content": []object{{"text": "Hi"}}}}, "stopReason": "end_turn"},
	}[c.API]
	if c.API == "audio_speech" {
		return "audio/mpeg", []byte("\xff\xfb\x90\x00")
	}
	if c.API == "images" {
		for i := range c.Response["data"].([]any) {
			c.Response["data"].([]any)[i] = object{"b64_json": "aGk="}
		}
	}
	return "application/json", encode(c.merged(around))
}

// stream is the answer in events; nil where the API has none.
func (c *costCase) stream() (contentType string, body []byte) {
	const sse = "text/event-stream"
	event := func(name string, v object) []byte {
		if name != "" {
			name = "event: " + name + "\n"
		}
		return fmt.Appendf(nil, "%sdata: %s\n\n", name, encode(v))
	}
	switch c.API {
	case "chat_completions":
		chunk := object{"object": "chat.completion.chunk", "model": c.Model}
		text, last := maps.Clone(chunk), c.merged(chunk)
		text["choices"] = []object{{"index": 0, "delta": object{"content": "Hi"}, "finish_reason": "stop"}}
		last["choices"] = []object{}
		return sse, bytes.Join([][]byte{event("", text), event("", last), []byte("data: [DONE]\n\n")}, nil)
	case "responses":
		return sse, event("response.completed", object{
			"type": "response.completed", "response": c.merged(object{"object": "response", "status": "completed", "model": c.Model}),
		})
	case "messages":
		return sse, bytes.Join([][]byte{
			event("message_start", object{"type": "message_start", "message": c.merged(object{"type": "message", "model": c.Model})}),
			event("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": "Hi"}}),
			event("message_delta", object{
				"type": "message_delta", "delta": object{"stop_reason": "end_turn"},
				"usage": object{"output_tokens": c.Response["usage"].(object)["output_tokens"]},
			}),
			event("message_stop", object{"type": "message_stop"}),
		}, nil)
	case "generate_content":
		_, whole := c.document()
		return sse, fmt.Appendf(nil, "data: %s\n\n", whole)
	case "bedrock_converse":
		return "application/vnd.amazon.eventstream", bytes.Join([][]byte{
			amazonEvent("contentBlockDelta", object{"contentBlockIndex": 0, "delta": object{"text": "Hi"}}),
			amazonEvent("messageStop", object{"stopReason": "end_turn"}),
			amazonEvent("metadata", c.Response),
		}, nil)
	default:
		return "", nil
	}
}

// amazonEvent is a message of an AWS event stream.
func amazonEvent(kind string, v object) []byte {
	var headers []byte
	for _, h := range [][2]string{{":event-type", kind}, {":content-type", "application/json"}, {":message-type", "event"}} {
		headers = append(headers, byte(len(h[0])))
		headers = append(headers, h[0]...)
		headers = append(headers, 7) // a string
		headers = binary.BigEndian.AppendUint16(headers, uint16(len(h[1])))
		headers = append(headers, h[1]...)
	}
	payload := encode(v)
	m := binary.BigEndian.AppendUint32(nil, uint32(12+len(headers)+len(payload)+4))
	m = binary.BigEndian.AppendUint32(m, uint32(len(headers)))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
	m = append(append(m, headers...), payload...)
	return binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// request is the call: its path, and its body with a content type.
func (c *costCase) request(t *testing.T, streamed bool) (path, contentType string, body []byte) {
	t.Helper()
	ask := object{}
	maps.Copy(ask, c.Request)
	question := []object{{"role": "user", "content": "hi"}}
	switch c.API {
	case "chat_completions":
		path, ask["model"], ask["messages"] = "/v1/chat/completions", c.Model, question
	case "responses":
		path, ask["model"], ask["input"] = "/v1/responses", c.Model, "hi"
	case "messages":
		path, ask["model"], ask["messages"], ask["max_tokens"] = "/v1/messages", c.Model, question, 100
	case "images":
		path, ask["model"], ask["prompt"] = "/v1/images/generations", c.Model, "a cat"
	case "embeddings":
		path, ask["model"], ask["input"] = "/v1/embeddings", c.Model, "hi"
	case "rerank":
		path, ask["model"], ask["query"], ask["documents"] = "/v2/rerank", c.Model, "hi", []string{"a"}
	case "ocr":
		path, ask["model"] = "/v1/ocr", c.Model
		ask["document"] = object{"type": "document_url", "document_url": "https://a.example/b.pdf"}
	case "audio_speech":
		path, ask["model"] = "/v1/audio/speech", c.Model
		n, err := ask["input_characters"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		delete(ask, "input_characters")
		ask["input"] = strings.Repeat("é", int(n))
	case "audio_transcription":
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		if err := w.WriteField("model", c.Model); err != nil {
			t.Fatal(err)
		}
		file, err := w.CreateFormFile("file", "a.mp3")
		if err != nil {
			t.Fatal(err)
		}
		file.Write([]byte("\x00\x01\x02\x03"))
		w.Close()
		return "/v1/audio/transcriptions", w.FormDataContentType(), form.Bytes()
	case "generate_content":
		path, ask["contents"] = "/v1beta/models/"+c.Model+":generateContent", []object{{"parts": []object{{"text": "hi"}}}}
		if streamed {
			path = strings.Replace(path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
		}
	case "bedrock_converse":
		path, ask["messages"] = "/model/"+c.Model+"/converse", []object{{"role": "user", "content": []object{{"text": "hi"}}}}
		if streamed {
			path += "-stream"
		}
	}
	if streamed && ask["model"] != nil {
		ask["stream"] = true
	}
	return path, "application/json", encode(ask)
}

// table writes the case's prices into a file, in LiteLLM's form.
func (c *costCase) table(t *testing.T) string {
	t.Helper()
	row := object{"litellm_provider": c.Provider}
	maps.Copy(row, c.Prices)
	if c.API == "images" {
		row["mode"] = "image_generation"
	}
	rows := object{c.Key: row}
	if c.Key != c.Model && c.Key == "gpt-4o" { // the dated row has no prices of its own for the service
		dated := maps.Clone(row)
		maps.DeleteFunc(dated, func(name string, _ any) bool { return strings.HasSuffix(name, "_priority") })
		rows[c.Model] = dated
	}
	file := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(file, encode(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCallsCostWhatTheirProvidersBill(t *testing.T) {
	for _, c := range costCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			t.Run("whole", func(t *testing.T) { c.run(t, false) })
			if _, events := c.stream(); events != nil {
				t.Run("streamed", func(t *testing.T) { c.run(t, true) })
			}
		})
	}
}

// run sends the call through a gateway, and compares what it cost in the counter, in the
// log and in the variables.
func (c *costCase) run(t *testing.T, streamed bool) {
	contentType, answer := c.document()
	if streamed {
		contentType, answer = c.stream()
	}
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Write(answer)
	})
	prices := "unknown_model unpriced" // what the provider says is all there is
	if c.Key != "" {
		prices = "prices " + c.table(t)
	}
	g := start(t, up, `{site} {
		log
		log_append cost {http.vars.x-llm-cost}
		log_append cost_status {http.vars.x-llm-cost-status}
		cost_limit {name} {
			limit $1_000 per hour
		}
		llm_cost {
			provider `+c.Provider+`
			`+prices+`
		}
		reverse_proxy {upstream}
	}`)
	path, kind, body := c.request(t, streamed)
	if a := g.call("POST", path, "", string(body), "Content-Type", kind); a.Status != http.StatusOK {
		t.Fatalf("%d: %s", a.Status, a.Body)
	}
	status := "calculated"
	switch {
	case c.Reported != "":
		status = "reported"
	case c.API == "audio_speech", c.API == "images" && c.Response["usage"] == nil:
		status = "estimated" // sound and pictures say no tokens: something else is billed
	}
	line := g.logLine()
	if line.LLM["cost_usd"] != c.Want || line.Cost != c.Want || line.Status != status {
		t.Errorf("the log says %v, the variables %s, %s; want %s, %s: %v", line.LLM["cost_usd"], line.Cost, line.Status, c.Want, status, line.LLM)
	}
	if got, err := money.ParseUSD(g.spent("").Used); err != nil || got.String() != c.Want {
		t.Errorf("charged %s (%v), want %s", got, err, c.Want)
	}
	if want, err := strconv.ParseFloat(c.Want, 64); err != nil || want <= 0 {
		t.Errorf("a case that costs nothing: %v", err)
	}
}

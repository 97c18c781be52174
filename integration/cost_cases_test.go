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

	"github.com/llmlimits/caddy-llm-limits/internal/costcase"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// costCase is a call whose exact cost is known.
type costCase struct {
	*costcase.Case
	response object
}

func costCases(t *testing.T) (cases []*costCase) {
	t.Helper()
	for _, c := range costcase.Read(t, filepath.Join("..", "llmcost", "prices", "testdata", "cost.json")) {
		if c.API == "batch_line" { // a body like any other, served as the words say
			c.API = "chat_completions"
			c.Response["service_tier"] = json.RawMessage(`"batch"`)
		}
		cases = append(cases, &costCase{c, decode(t, encode(c.Response))})
	}
	return cases
}

// object is JSON.
type object = map[string]any

// decode reads an object, whose numbers stay as they are written.
func decode(t *testing.T, body []byte) (o object) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// merged is a document of an API with what a case says of it.
func (c *costCase) merged(around object) object {
	all := maps.Clone(around)
	maps.Copy(all, c.response)
	return all
}

// document is the answer in one piece.
func (c *costCase) document(t *testing.T) (contentType string, body []byte) {
	t.Helper()
	if body = c.Answer(t); body == nil {
		return "audio/mpeg", []byte("\xff\xfb\x90\x00")
	}
	return "application/json", body
}

// stream is the answer in events; nil where the API has none.
func (c *costCase) stream(t *testing.T) (contentType string, body []byte) {
	t.Helper()
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
				"usage": object{"output_tokens": c.response["usage"].(object)["output_tokens"]},
			}),
			event("message_stop", object{"type": "message_stop"}),
		}, nil)
	case "generate_content":
		_, whole := c.document(t)
		return sse, fmt.Appendf(nil, "data: %s\n\n", whole)
	case "bedrock_converse":
		return "application/vnd.amazon.eventstream", bytes.Join([][]byte{
			amazonEvent("contentBlockDelta", object{"contentBlockIndex": 0, "delta": object{"text": "Hi"}}),
			amazonEvent("messageStop", object{"stopReason": "end_turn"}),
			amazonEvent("metadata", c.response),
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
	path, ask := c.Path(), decode(t, c.Body(t))
	if c.API == "audio_transcription" {
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
		return path, w.FormDataContentType(), form.Bytes()
	}
	switch {
	case !streamed:
	case c.API == "generate_content":
		path = strings.Replace(path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
	case c.API == "bedrock_converse":
		path += "-stream"
	default:
		ask["stream"] = true
	}
	return path, "application/json", encode(ask)
}

// table writes the case's prices into a file, in LiteLLM's form.
func (c *costCase) table(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(file, c.Table(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCallsCostWhatTheirProvidersBill(t *testing.T) {
	for _, c := range costCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			t.Run("whole", func(t *testing.T) { c.run(t, false) })
			if _, events := c.stream(t); events != nil {
				t.Run("streamed", func(t *testing.T) { c.run(t, true) })
			}
		})
	}
}

// run sends the call through a gateway, and compares what it cost in the counter, in the
// log and in the variables.
func (c *costCase) run(t *testing.T, streamed bool) {
	contentType, answer := c.document(t)
	if streamed {
		contentType, answer = c.stream(t)
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
	case c.API == "audio_speech", c.API == "images" && c.response["usage"] == nil:
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

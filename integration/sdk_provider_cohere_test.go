package integration

import (
	"fmt"
	"net/http"
	"strings"
)

// cohere answers as Cohere does, which bills less than it processes: its own template
// is free. It reports false for a call that it has not.
func (rp *reply) cohere(call string) bool {
	switch call {
	case "POST /v2/chat":
		rp.cohereChat(rp.serves(tokens{Input: 13, Output: 61}))
	case "POST /v1/chat":
		rp.cohereChatV1(rp.serves(tokens{Input: 14, Output: 62}))
	case "POST /v2/embed":
		t := rp.serves(tokens{Input: 10})
		rp.json(fmt.Sprintf(`{"id":"e1","embeddings":{"float":[[0.5,-0.25]]},"texts":["clay"],"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":%d}},"response_type":"embeddings_by_type"}`, t.Input))
	case "POST /v2/rerank": // paid by the search, not by the token
		rp.json(`{"id":"r1","results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.2}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`)
	case "GET /v1/models":
		rp.json(`{"models":[{"name":"command-a-03-2025","endpoints":["chat"],"finetuned":false,"context_length":256000}]}`)
	default:
		return false
	}
	return true
}

// cohereUnits is what is billed and what was processed.
func cohereUnits(t tokens) string {
	return fmt.Sprintf(`"billed_units":{"input_tokens":%d,"output_tokens":%d},"tokens":{"input_tokens":%d,"output_tokens":%d}`, t.Input, t.Output, t.Input+495, t.Output+2)
}

func (rp *reply) cohereChat(t tokens) {
	usage := `{` + cohereUnits(t) + `,"cached_tokens":448}`
	if !rp.q.Stream {
		rp.json(`{"id":"co1","message":{"role":"assistant","content":[{"type":"text","text":` + answerJSON + `}]},"finish_reason":"COMPLETE","usage":` + usage + `}`)
		return
	}
	stream := rp.stream()
	send := func(name, members string) { stream(name, `{"type":"`+name+`",`+members+`}`) }
	send("message-start", `"id":"co1","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[],"citations":[]}}`)
	send("content-start", `"index":0,"delta":{"message":{"content":{"type":"text","text":""}}}`)
	for _, part := range answerParts {
		send("content-delta", `"index":0,"delta":{"message":{"content":{"text":`+quoted(part)+`}}}`)
	}
	send("content-end", `"index":0`)
	send("message-end", `"id":"co1","delta":{"finish_reason":"COMPLETE","usage":`+usage+`}`)
	stream("", "[DONE]")
}

// cohereChatV1 answers in lines, or in events if the client asks for those.
func (rp *reply) cohereChatV1(t tokens) {
	whole := `{"text":` + answerJSON + `,"generation_id":"g1","response_id":"co1","finish_reason":"COMPLETE","chat_history":[],"meta":{"api_version":{"version":"1"},` + cohereUnits(t) + `}}`
	if !rp.q.Stream {
		rp.json(whole)
		return
	}
	events := strings.Contains(rp.r.Header.Get("Accept"), "text/event-stream")
	rp.w.Header().Set("Content-Type", "application/stream+json")
	if events {
		rp.w.Header().Set("Content-Type", "text/event-stream")
	}
	send := func(name, members string) {
		line := `{"is_finished":` + fmt.Sprint(name == "stream-end") + `,"event_type":"` + name + `",` + members + "}\n"
		if events {
			line = "data: " + line + "\n"
		}
		fmt.Fprint(rp.w, line)
		http.NewResponseController(rp.w).Flush()
	}
	send("stream-start", `"generation_id":"g1"`)
	for _, part := range answerParts {
		send("text-generation", `"text":`+quoted(part))
	}
	send("stream-end", `"finish_reason":"COMPLETE","response":`+whole)
}

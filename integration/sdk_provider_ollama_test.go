package integration

import (
	"fmt"
	"net/http"
)

// ollama answers as Ollama does. It reports false for a call that it has not.
func (rp *reply) ollama(call string) bool {
	switch call {
	case "POST /api/chat":
		rp.ollamaText(rp.serves(tokens{Input: 26, Output: 298}), func(text string) string {
			return `"message":{"role":"assistant","content":` + text + `}`
		})
	case "POST /api/generate":
		rp.ollamaText(rp.serves(tokens{Input: 27, Output: 299}), func(text string) string { return `"response":` + text })
	case "POST /api/embed":
		t := rp.serves(tokens{Input: 8})
		rp.json(fmt.Sprintf(`{"model":"nomic-embed-text","embeddings":[[0.5,-0.25]],"total_duration":14143917,"load_duration":1019500,"prompt_eval_count":%d}`, t.Input))
	case "GET /api/tags":
		rp.json(`{"models":[{"name":"qwen3:4b","model":"qwen3:4b","modified_at":"2026-11-01T10:00:00Z","size":2620788019}]}`)
	case "POST /api/show":
		rp.json(`{"license":"Apache","details":{"format":"gguf","family":"qwen3"},"capabilities":["completion"]}`)
	default:
		return false
	}
	return true
}

// ollamaText answers with text, in lines if these are asked for.
func (rp *reply) ollamaText(t tokens, text func(text string) string) {
	line := func(content, rest string) string {
		return `{"model":"qwen3:4b","created_at":"2026-11-29T10:00:00.1Z",` + text(content) + `,"done":` + rest + "}\n"
	}
	done := fmt.Sprintf(`true,"done_reason":"stop","total_duration":912345678,"load_duration":30000000,"prompt_eval_count":%d,"prompt_eval_duration":200000000,"eval_count":%d,"eval_duration":600000000`, t.Input, t.Output)
	if !rp.q.Stream {
		rp.json(line(answerJSON, done))
		return
	}
	rp.w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(line string) {
		fmt.Fprint(rp.w, line)
		http.NewResponseController(rp.w).Flush()
	}
	for _, part := range answerParts {
		send(line(quoted(part), "false"))
	}
	send(line(`""`, done))
}

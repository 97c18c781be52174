package integration

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// worked is an example of the page about costs.
var worked = regexp.MustCompile("(?s)^(.+?)\n\n`POST (\\S+)`, model `(\\S+)`\n\n```caddyfile\n(.+?)```\n\n```json\n(.+?)```\n\n.*\\*\\*\\$([0-9.]+)\\*\\* \\((\\w+)\\)\n*$")

func TestExamplesOfThePageAboutCosts(t *testing.T) {
	page, err := os.ReadFile("../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, found := strings.Cut(string(page), "\n## Examples\n")
	sections := strings.Split(examples, "\n### ")[1:]
	if !found || len(sections) < 10 {
		t.Fatalf("the page has %d examples", len(sections))
	}
	for _, section := range sections {
		m := worked.FindStringSubmatch(section)
		if m == nil {
			t.Errorf("not an example: %s", section)
			continue
		}
		title, path, model, prices, answer, cost, status := m[1], m[2], m[3], m[4], m[5], m[6], m[7]
		t.Run(title, func(t *testing.T) {
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, answer)
			})
			g := start(t, up, `{site} {
				log
				log_append cost {http.vars.x-llm-cost}
				log_append cost_status {http.vars.x-llm-cost-status}
				cost_limit {name} {
					limit $10 per hour
				}
				`+prices+`
				reverse_proxy {upstream}
			}`)
			body := `{"model":"` + model + `","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
			switch {
			case strings.Contains(path, "gemini"):
				body = `{"contents":[{"parts":[{"text":"hi"}]}]}`
			case strings.Contains(path, "converse"):
				body = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`
			case strings.HasSuffix(path, "/rerank"):
				body = `{"model":"` + model + `","query":"hi","documents":["a"]}`
			case strings.HasSuffix(path, "/ocr"):
				body = `{"model":"` + model + `","document":{"type":"document_url","document_url":"https://a.example/b.pdf"}}`
			case strings.HasSuffix(path, "/generations"):
				body = `{"model":"` + model + `","prompt":"a cat","n":2}`
			}
			if a := g.call("POST", path, "", body); a.Status != http.StatusOK {
				t.Fatalf("%d: %s", a.Status, a.Body)
			}
			if line := g.logLine(); line.LLM["cost_usd"] != cost || line.Cost != cost || line.Status != status {
				t.Errorf("costs %v (%s), and the page says %s (%s)", line.LLM["cost_usd"], line.Status, cost, status)
			}
		})
	}
}

package llmui

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/browsertest"
)

func TestConsumersNamesAreText(t *testing.T) {
	resets := time.Now().Add(40 * time.Minute)
	var rows []fakeRow
	for _, name := range []string{`<img src=x onerror="document.title='hit'">`, `"><script>alert(1)</script>`, "javascript:alert(1)", "a/b?c#d%2f", "..", "Größe 😀 \u202e\u0000"} {
		rows = append(rows, fakeRow{
			Instance: `<b>apps</b>`, Rule: "tokens per hour (<i>*)", Consumer: name, Unit: "tokens",
			Limit: 100, Used: 60, Reserved: 0, Remaining: 40, ResetsAt: &resets,
		})
	}
	s := startSite(t, &fakeAdmin{rows: rows})
	browsertest.Run(t, browsertest.Script{Path: "testdata/names.mjs", URL: s.url + s.link(), Args: rows}, nil)
}

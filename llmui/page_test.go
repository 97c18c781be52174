package llmui

import (
	"fmt"
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

func TestTenThousandConsumersStayQuick(t *testing.T) {
	const consumers = 10_000
	var rows []fakeRow
	resets := time.Now().Add(40 * time.Minute)
	for i := range consumers {
		name := fmt.Sprintf("team-%d", i)
		used := i * 7919 % 12_000
		rows = append(rows,
			fakeRow{Instance: "apps", Rule: "tokens per hour", Consumer: name, Unit: "tokens", Limit: 10_000, Used: used, Reserved: 0, Remaining: max(0, 10_000-used), ResetsAt: &resets},
			fakeRow{Instance: "apps", Rule: "requests per minute", Consumer: name, Unit: "requests", Limit: 60, Used: i % 40, Reserved: 0, Remaining: 60 - i%40, ResetsAt: &resets},
			fakeRow{Instance: "budget", Rule: "usd per day", Consumer: name, Unit: "usd", Limit: "10", Used: fmt.Sprintf("%d.%02d", i%9, i%100), Reserved: "0", Remaining: "1", ResetsAt: &resets})
	}
	s := startSite(t, &fakeAdmin{rows: rows, page: 1500})
	var took map[string]float64
	browsertest.Run(t, browsertest.Script{Path: "testdata/many.mjs", URL: s.url + s.link(), Args: map[string]int{"consumers": consumers}}, &took)
	for what, ms := range took {
		t.Logf("%s: %.0f ms", what, ms)
		if ms > 2000 { // some tens, on a machine that has nothing else to do
			t.Errorf("%s takes %.0f ms", what, ms)
		}
	}
}

func TestAmountsAreReadAsTheyAreMeant(t *testing.T) {
	s := startSite(t, &fakeAdmin{})
	browsertest.Run(t, browsertest.Script{Path: "testdata/amounts.mjs", URL: s.url + s.link()}, nil)
}

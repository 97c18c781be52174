package metrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of docs/metrics.md")

// page is the page whose list is made from the table of this package.
var page = filepath.Join("..", "..", "docs", "metrics.md")

func TestPageListsEveryMetric(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	before, rest, begun := strings.Cut(text, "<!-- begin metrics:")
	mark, rest, marked := strings.Cut(rest, "-->\n")
	_, after, ended := strings.Cut(rest, "<!-- end metrics -->")
	if !begun || !marked || !ended {
		t.Fatalf("%s has no place for the list", page)
	}
	want := before + "<!-- begin metrics:" + mark + "-->\n" + list() + "<!-- end metrics -->" + after
	if want == text {
		return
	}
	if !*update {
		t.Fatalf("%s is stale; write it with go test ./internal/metrics -run TestPageListsEveryMetric -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func list() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | |\n|---|---|---|---|\n")
	for _, m := range all {
		labels := "none"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	return b.String()
}

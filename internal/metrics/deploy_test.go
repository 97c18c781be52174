package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// deployed is where what operators load stands.
var deployed = filepath.Join("..", "..", "deploy")

// rule is an alert.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	file, err := os.Open(filepath.Join(deployed, "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var rules struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	d := yaml.NewDecoder(file)
	d.KnownFields(true) // Prometheus refuses others
	if err := d.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range rules.Groups {
		if g.Name == "" {
			t.Error("a group without a name")
		}
		all = append(all, g.Rules...)
	}
	return all
}

// panel is a part of the dashboard.
type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

func panels(t *testing.T) []panel {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(deployed, "grafana", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string  `json:"title"`
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	return board.Panels
}

func TestAlertsUseMetricsThatThereAre(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range alerts(t) {
		if r.Alert == "" || seen[r.Alert] {
			t.Errorf("alert %q has no name of its own", r.Alert)
		}
		seen[r.Alert] = true
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", r.Alert)
		}
		if len(metricsIn(r.Expr)) == 0 {
			t.Errorf("%s uses no metric", r.Alert)
		}
		if err := checkExpr(r.Expr); err != nil {
			t.Errorf("%s: %v", r.Alert, err)
		}
		grouped := groupedBy(r.Expr)
		for _, text := range r.Annotations {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if !slices.Contains(grouped, m[1]) {
					t.Errorf("%s tells a label %q, which its result has not", r.Alert, m[1])
				}
			}
		}
	}
}

func TestDashboardUsesMetricsThatThereAre(t *testing.T) {
	ids := make(map[int]bool)
	for _, p := range panels(t) {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q has no id or title of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, q := range p.Targets {
			if len(metricsIn(q.Expr)) == 0 {
				t.Errorf("panel %q uses no metric", p.Title)
			}
			if err := checkExpr(q.Expr); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
		}
	}
}

func TestEveryMetricIsShown(t *testing.T) {
	var shown []string
	for _, p := range panels(t) {
		for _, q := range p.Targets {
			shown = append(shown, metricsIn(q.Expr)...)
		}
	}
	for _, m := range all {
		if !slices.ContainsFunc(shown, func(s string) bool { return named(s) == m }) {
			t.Errorf("the dashboard does not show %s", m.name)
		}
	}
}

var metricName = regexp.MustCompile(`\bllm_\w+`)

func metricsIn(expr string) []string { return metricName.FindAllString(expr, -1) }

// groupedBy are the labels by which the aggregations of an expression keep series apart.
func groupedBy(expr string) (labels []string) {
	for _, m := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			labels = append(labels, strings.TrimSpace(l))
		}
	}
	return labels
}

// named is the metric of a series.
func named(series string) *metric {
	for _, m := range all {
		if m.name == series {
			return m
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if m.kind == histogram && m.name+suffix == series {
				return m
			}
		}
	}
	return nil
}

// checkExpr finds what is most often wrong with an expression: a metric or a label that
// does not exist, and brackets that do not close.
func checkExpr(expr string) error {
	var known []string // labels of all metrics in the expression
	for _, name := range metricsIn(expr) {
		m := named(name)
		if m == nil {
			return fmt.Errorf("there is no metric %s", name)
		}
		known = append(known, m.labels...)
	}
	known = append(known, "job", "instance", "le")
	for _, l := range groupedBy(expr) {
		if !slices.Contains(known, l) {
			return fmt.Errorf("there is no label %s to group by", l)
		}
	}
	for _, s := range regexp.MustCompile(`\b(llm_\w+)\{([^}]*)\}`).FindAllStringSubmatch(expr, -1) {
		for _, l := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"`).FindAllStringSubmatch(s[2], -1) {
			if m := named(s[1]); l[1] != "job" && l[1] != "instance" && !slices.Contains(m.labels, l[1]) {
				return fmt.Errorf("%s has no label %s", s[1], l[1])
			}
		}
	}
	return balanced(expr)
}

func balanced(expr string) error {
	var open []rune
	quoted := false
	for _, c := range expr {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.ContainsRune("([{", c):
			open = append(open, c)
		case strings.ContainsRune(")]}", c):
			pair := map[rune]rune{')': '(', ']': '[', '}': '{'}[c]
			if len(open) == 0 || open[len(open)-1] != pair {
				return fmt.Errorf("%q closes nothing", c)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 || quoted {
		return fmt.Errorf("%q is left open", string(open))
	}
	return nil
}

func TestExpressionsThatAreWrong(t *testing.T) {
	for _, expr := range []string{
		`sum(llm_nothing_total)`,
		`sum by (colour) (llm_tokens_total)`,
		`llm_tokens_total{instance="x", limiter="y"}`,
		`sum(rate(llm_tokens_total[5m])`,
		`llm_tokens_total{kind="input}`,
		`llm_requests_total_bucket`,
	} {
		if err := checkExpr(expr); err == nil {
			t.Errorf("%s is let pass", expr)
		}
	}
}

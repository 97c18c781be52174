package llmlimits

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

var updateDocs = flag.Bool("update", false, "write the JSON beside the Caddyfiles of docs/json.md anew")

// fence is a block of code in a page: its language, its text, and where the text stands.
type fence struct {
	lang, text string
	begin, end int
}

var fences = regexp.MustCompile("(?s)(?:^|\n)```(\\w+)\n(.*?\n)```\n")

func fencesOf(page []byte) (all []fence) {
	for _, m := range fences.FindAllSubmatchIndex(page, -1) {
		all = append(all, fence{string(page[m[2]:m[3]]), string(page[m[4]:m[5]]), m[4], m[5]})
	}
	return all
}

// grammar is what tells how a directive is written from an example of it.
var grammar = regexp.MustCompile(`<\w[\w ,:|-]*>|…`)

// pages are the documentation, by file name.
func pages(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	all := make(map[string][]byte)
	for _, name := range append(names, "README.md") {
		if all[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// example adapts an example of a page, which may be a whole Caddyfile, global options, or
// directives of a site. What it returns is as much of the config as the example says:
// of directives their routes, or the handler where there is one alone.
func example(t *testing.T, text string) json.RawMessage {
	t.Helper()
	text = regexp.MustCompile(` +#`).ReplaceAllString(text, " #") // caddy fmt would not have comments in line
	if strings.HasPrefix(text, "{\n") || strings.HasPrefix(text, ":") || strings.HasPrefix(text, "http") {
		return adapt(t, text)
	}
	site := ":8080 {\n" + regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, "\t$1") + "}\n"
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct{ Routes []json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(adapt(t, site), &config); err != nil {
		t.Fatal(err)
	}
	routes := config.Apps.HTTP.Servers["srv0"].Routes
	if len(routes) == 1 {
		var route map[string]json.RawMessage
		if err := json.Unmarshal(routes[0], &route); err != nil {
			t.Fatal(err)
		}
		var handlers []json.RawMessage
		if err := json.Unmarshal(route["handle"], &handlers); err != nil {
			t.Fatal(err)
		}
		if len(route) == 1 && len(handlers) == 1 {
			return handlers[0]
		}
	}
	return caddyconfig.JSON(routes, nil)
}

// A fence that is not closed shows the rest of its page as code.
func TestFencesOfTheDocumentationAreClosed(t *testing.T) {
	for name, page := range pages(t) {
		inside := false
		for i, line := range strings.Split(string(page), "\n") {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "```") {
				continue
			}
			if inside && line != "```" {
				t.Errorf("%s:%d: a fence begins within another", name, i+1)
			}
			inside = !inside
		}
		if inside {
			t.Errorf("%s: the last fence is open", name)
		}
	}
}

// option is a word of a Caddyfile that an unmarshaler knows.
var option = regexp.MustCompile(`case ("[a-z_]+"(?:, "[a-z_]+")*):`)

// Whatever a Caddyfile may say has an example beside its JSON.
func TestEveryOptionIsInThePageAboutJSON(t *testing.T) {
	page, err := os.ReadFile("docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, f := range fencesOf(page) {
		if f.lang == "caddyfile" {
			examples.WriteString(f.text)
		}
	}
	n := 0
	for _, pattern := range []string{"*/*caddyfile.go", "internal/*/*caddyfile.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, words := range option.FindAllSubmatch(source, -1) {
				for word := range strings.SplitSeq(string(words[1]), ", ") {
					n++
					if word = strings.Trim(word, `"`); !regexp.MustCompile(`\b` + word + `\b`).MatchString(examples.String()) {
						t.Errorf("docs/json.md has no example of %s (%s)", word, file)
					}
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("%d options are found, which cannot be all", n)
	}
}

// reference is a link to a file of the repository.
var reference = regexp.MustCompile(`\]\(([^):#]*)(#[^)]*)?\)`)

// heading is one, and notInAnchor what GitHub leaves out of its anchor.
var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func TestLinksOfTheDocumentationLead(t *testing.T) {
	all := pages(t)
	anchors := make(map[string]bool)
	for name, page := range all {
		for _, m := range heading.FindAllSubmatch(page, -1) {
			text := notInAnchor.ReplaceAllString(strings.ToLower(string(m[1])), "")
			anchors[name+"#"+strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	n := 0
	for name, page := range all {
		for _, m := range reference.FindAllSubmatch(page, -1) {
			n++
			to := name
			if len(m[1]) > 0 {
				to = filepath.Join(filepath.Dir(name), string(m[1]))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			} else if anchor := string(m[2]); anchor != "" && !anchors[to+anchor] {
				t.Errorf("%s: %s: no such heading", name, m[0])
			}
		}
	}
	if n == 0 {
		t.Error("no links")
	}
}

func TestExamplesOfTheDocumentationAdapt(t *testing.T) {
	for name, page := range pages(t) {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, f := range fencesOf(page) {
				if f.lang == "caddyfile" && !grammar.MatchString(f.text) {
					n++
					example(t, f.text)
				}
			}
			if n == 0 && (name == "README.md" || name == filepath.Join("docs", "json.md")) {
				t.Error("no examples")
			}
		})
	}
}

// JSON that stands behind an example, with nothing between, says the same.
func TestJSONOfTheDocumentationIsThatOfTheCaddyfile(t *testing.T) {
	for name, page := range pages(t) {
		t.Run(name, func(t *testing.T) {
			all := fencesOf(page)
			for i := len(all) - 1; i > 0; i-- { // from the end, so that places stay right
				twin, f := all[i], all[i-1]
				between := strings.TrimSpace(string(page[f.end:twin.begin]))
				if f.lang != "caddyfile" || grammar.MatchString(f.text) || twin.lang != "json" || between != "```\n\n```json" {
					continue
				}
				raw := example(t, f.text)
				if *updateDocs && name != "README.md" {
					var pretty bytes.Buffer
					if err := json.Indent(&pretty, raw, "", "  "); err != nil {
						t.Fatal(err)
					}
					pretty.WriteByte('\n')
					page = append(page[:twin.begin:twin.begin], append(pretty.Bytes(), page[twin.end:]...)...)
					continue
				}
				if got, want := canonical(t, []byte(twin.text)), canonical(t, raw); got != want {
					t.Errorf("the page says\n%s\nbut the Caddyfile is\n%s", got, want)
				}
			}
			if *updateDocs && name != "README.md" {
				if err := os.WriteFile(name, page, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// canonical is JSON with its members sorted.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	pretty, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(pretty)
}

// A handler in JSON has only fields that the handler knows.
func TestHandlersInTheDocumentationAreKnown(t *testing.T) {
	n := 0
	for name, page := range pages(t) {
		for _, f := range fencesOf(page) {
			var h map[string]json.RawMessage
			if f.lang != "json" || json.Unmarshal([]byte(f.text), &h) != nil || h["handler"] == nil {
				continue
			}
			n++
			var handler string
			if err := json.Unmarshal(h["handler"], &handler); err != nil {
				t.Fatal(err)
			}
			info, err := caddy.GetModule("http.handlers." + handler)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			delete(h, "handler")
			text, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if err := caddy.StrictUnmarshalJSON(text, info.New()); err != nil {
				t.Errorf("%s: %s: %v", name, handler, err)
			}
		}
	}
	if n == 0 {
		t.Error("no handlers")
	}
}

func TestTheDayOfTheBuiltInPricesIsDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	if day := prices.Builtin().AsOf.Format(time.DateOnly); !strings.Contains(string(page), "The built-in table is of "+day) {
		t.Errorf("docs/costs.md does not say that the built-in table is of %s", day)
	}
}

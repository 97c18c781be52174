package usage

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of docs/apis.md")

// apisPage is the page whose lists are made from the tables of this package.
var apisPage = filepath.Join("..", "..", "docs", "apis.md")

// TestAPITable fails where the page is stale.
func TestAPITable(t *testing.T) {
	raw, err := os.ReadFile(apisPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for name, list := range map[string]string{
		"apis":      apiTable(t),
		"spending":  otherEndpoints(Spending),
		"free":      otherEndpoints(Free),
		"unmetered": otherEndpoints(Unmetered),
		"minting":   otherEndpoints(Minting),
		"upgrade":   otherEndpoints(Upgrade),
	} {
		page = replaceList(t, page, name, list)
	}
	if page == string(raw) {
		return
	}
	if !*update {
		t.Fatalf("%s is stale; write it with go test ./internal/usage -run TestAPITable -update", apisPage)
	}
	if err := os.WriteFile(apisPage, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replaceList puts a list between its marks.
func replaceList(t *testing.T, page, name, list string) string {
	t.Helper()
	before, rest, begun := strings.Cut(page, "<!-- begin "+name+":")
	mark, rest, marked := strings.Cut(rest, "-->\n")
	_, after, ended := strings.Cut(rest, "<!-- end "+name+" -->")
	if !begun || !marked || !ended {
		t.Fatalf("%s has no place for the list %q", apisPage, name)
	}
	return before + "<!-- begin " + name + ":" + mark + "-->\n" + list + "<!-- end " + name + " -->" + after
}

// apiTable has a row for each API that is known, in the order of the code.
func apiTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| API | endpoints | streams | where the usage is | cut off, it costs |\n|---|---|---|---|---|\n")
	for a := OpenAIChat; int(a) < len(apiRows); a++ {
		row := &apiRows[a]
		if row.name == "" || row.usage == "" {
			t.Errorf("API %d is not described", a)
		}
		streams := row.streams
		if streams == "" {
			streams = "none"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", row.name, endpointsOf(t, a), streams, row.usage, cutOff(a))
	}
	return b.String()
}

// endpointsOf lists the paths of an API.
func endpointsOf(t *testing.T, a API) string {
	t.Helper()
	var paths []string
	for _, row := range endpointRows {
		if row.api == a {
			paths = append(paths, "`"+row.path+"`")
		}
	}
	if s := apiRows[a].socket; s != "" {
		paths = append(paths, "WebSocket `"+s+"`")
	}
	if len(paths) == 0 {
		t.Errorf("%s has no endpoint", a)
	}
	return strings.Join(paths, ", ")
}

// cutOff is what a call costs that was cut off before it reported.
func cutOff(a API) string {
	row := &apiRows[a]
	free := func(e endpointRow) bool { return e.api == a && e.class == Free }
	switch {
	case slices.ContainsFunc(endpointRows, free):
		return "nothing"
	case row.streams == "WebSocket":
		return "the turn, as estimated"
	case row.silent:
		return "the prompt, as estimated"
	case row.early:
		return "the prompt, as reported; the output"
	default:
		return "the prompt, as estimated; the output"
	}
}

// otherEndpoints lists the paths of a class that belong to no API, by whose words their
// errors are in.
func otherEndpoints(class Class) string {
	var b strings.Builder
	for d := OpenAI; d <= Ollama; d++ {
		var paths []string
		for _, row := range endpointRows {
			if row.class == class && row.api == UnknownAPI && row.dialect == d {
				paths = append(paths, "`"+row.path+"`")
			}
		}
		if len(paths) > 0 {
			fmt.Fprintf(&b, "- errors as %s's: %s\n", vendors[d], strings.Join(paths, ", "))
		}
	}
	return b.String()
}

// vendors are the names of the dialects in prose.
var vendors = map[Dialect]string{OpenAI: "OpenAI", Anthropic: "Anthropic", Gemini: "Google", Bedrock: "AWS", Ollama: "Ollama"}

func TestAPIsHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]API)
	for a := UnknownAPI; int(a) < len(apiRows); a++ {
		name := a.String()
		// the two paths of one API differ in what they answer with alone
		if first, ok := seen[name]; (ok && first != TGIGenerate) || name == "" {
			t.Errorf("API %d is named %q, as API %d", a, name, first)
		}
		seen[name] = a
	}
	if beyond := API(len(apiRows)); beyond.String() != "unknown" || !beyond.Generates() {
		t.Errorf("an API that does not exist is named %q", beyond)
	}
}

func TestSocketsOfAPIsAreIdentified(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for a := range apiRows {
		socket := apiRows[a].socket
		if (socket != "") != strings.Contains(apiRows[a].streams, "WebSocket") {
			t.Errorf("%s: socket %q, but it streams %q", API(a), socket, apiRows[a].streams)
		}
		if socket == "" {
			continue
		}
		ep := Identify(http.MethodGet, &url.URL{Path: "/v1/" + socket}, upgrade)
		if ep.API != API(a) || ep.Class != Realtime {
			t.Errorf("%s: %+v", socket, ep)
		}
	}
}

func TestSamplesAreFramedAsTheTableSays(t *testing.T) {
	for _, s := range samples(t) {
		row := identify(t, s.Method, s.Path, nil).API.row()
		framing := ""
		switch media, _, _ := strings.Cut(s.Type, ";"); {
		case s.Method != http.MethodPost:
		case media == "text/event-stream":
			framing = "SSE"
		case media == "application/x-ndjson":
			framing = "lines of JSON"
		case media == "application/vnd.amazon.eventstream":
			framing = "AWS event stream"
		case strings.HasPrefix(string(s.body), "["):
			framing = "a JSON array"
		}
		if framing != "" && !strings.Contains(row.streams, framing) {
			t.Errorf("%s is framed as %s, but %s streams %q", s.File, framing, row.name, row.streams)
		}
		if row.early && framing != "" && s.Expected.Found {
			if r := readPieces(s.header(), s.Status, s.body[:len(s.body)*3/4], false, whole); !r.Found {
				t.Errorf("%s, cut off, has not said how long the prompt was: %+v", s.File, r)
			}
		}
	}
}

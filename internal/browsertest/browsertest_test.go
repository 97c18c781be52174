package browsertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// page serves a page with a policy that allows scripts and styles of its own alone.
func page(t *testing.T, body string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; img-src * data:; connect-src *")
		_, _ = io.WriteString(w, `<!doctype html><html lang=en><head><title>A page</title></head><body>`+body+`</body></html>`)
	})
	for name, text := range map[string]string{
		"/throws.js":  `throw new Error("thrown")`,
		"/logs.js":    `console.error("logged")`,
		"/fetches.js": `fetch("/missing").catch(() => {})`,
	} {
		mux.HandleFunc(name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(w, text)
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestScriptSeesThePage(t *testing.T) {
	var got struct {
		Title, Heading string
		Wrong          []string
	}
	defer func(before func() bool) { keeps = before }(keeps)
	keeps = func() bool { return true }
	url := page(t, `<main><h1>Hello</h1><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="></main>`)
	Run(t, Script{Path: "testdata/look.mjs", URL: url, Args: map[string]string{"find": "h1"}}, &got)
	if got.Title != "A page" || got.Heading != "Hello" {
		t.Errorf("title %q, heading %q", got.Title, got.Heading)
	}
	if len(got.Wrong) != 1 || !strings.HasPrefix(got.Wrong[0], "image-alt") {
		t.Errorf("found for assistive technology: %q, want the image without a text", got.Wrong)
	}
	if info, err := os.Stat(t.ArtifactDir() + "/look.png"); err != nil || info.Size() < 100 {
		t.Errorf("no picture: %v", err)
	}
}

// failures takes the place of a test that is to fail.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Helper()                      {}
func (f *failures) Logf(string, ...any)          {}
func (f *failures) ArtifactDir() string          { return f.TB.ArtifactDir() }
func (f *failures) Errorf(_ string, args ...any) { f.add(args) }
func (f *failures) Fatalf(_ string, args ...any) { f.add(args) }

func (f *failures) add(args []any) {
	for _, a := range args {
		if text, ok := a.(string); ok {
			f.texts = append(f.texts, text)
		}
	}
}

func TestProblemsOfThePageFailTheTest(t *testing.T) {
	for _, tc := range []struct{ name, body, want string }{
		{"an exception", `<script src=throws.js></script>`, "exception: Error: thrown"},
		{"an error on the console", `<script src=logs.js></script>`, "console: logged"},
		{"a script in the page", `<script>document.title = "x"</script>`, "content security policy: script-src-elem blocked inline"},
		{"a style in the page", `<p style="color: red">x</p>`, "content security policy: style-src-attr blocked inline"},
		{"a request to another place", `<img alt=x src="http://other.test/x.png">`, "request to another place: http://other.test/x.png"},
		{"an answer that is an error", `<script src=fetches.js></script>`, "console: Failed to load resource: the server responded with a status of 404"},
		{"what the script looks for is not there", ``, "nothing is h1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &failures{TB: t}
			var result any
			find := "body"
			if tc.body == "" {
				find = "h1"
			}
			Run(f, Script{Path: "testdata/look.mjs", URL: page(t, tc.body), Args: map[string]string{"find": find}}, &result)
			if !strings.Contains(strings.Join(f.texts, "\n"), tc.want) {
				t.Errorf("got %q, want %q", f.texts, tc.want)
			}
		})
	}
}

package llmusage_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

func TestThePageMayUseItsStyleAndNothingElse(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit style {\nconsumer_based\nlimit 100 requests per day\n}\n")
	w := g.do("GET", "/llm/usage", keyA, "", "Accept", "text/html")
	m := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(w.Body.String())
	if len(m) != 2 || !strings.Contains(m[1], "--ink") {
		t.Fatalf("no style in %s", w.Body)
	}
	sum := sha256.Sum256([]byte(m[1]))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{"<script", "style=", "http:", "https:", "src=", "url("} {
		if strings.Contains(w.Body.String(), bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
}

func TestNamesAreTextInThePage(t *testing.T) {
	const name = `<img src=x onerror="alert(1)">'&{{.}}`
	g, err := load(t, ":0 {\nvars x-wso2-application-id {header.X-App}\nroute {\nllm_usage\ntoken_limit names {\nconsumer_based\nlimit 100 requests per day\n}\n}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	w := g.do("GET", "/llm/usage", "", "", "X-App", name, "Accept", "text/html")
	if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, "<img") || strings.Count(body, "&lt;img src=x onerror=") != 2 {
		t.Errorf("got %d: %s", w.Code, body)
	}
}

// operate asks the admin endpoint.
func operate(t *testing.T, method, target, body string) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, route := range new(llmapp.Admin).Routes() {
		if route.Pattern != r.URL.Path {
			continue
		}
		var api caddy.APIError
		if err := route.Handler.ServeHTTP(httptest.NewRecorder(), r); errors.As(err, &api) {
			t.Fatalf("%s: %v", target, api.Err)
		}
		return
	}
	t.Fatalf("nobody answers %s", target)
}

func TestLimitsOfOnesOwnAreShown(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit overridden {\nconsumer_based\nlimit 100 requests per day\n}\n")
	g.chat(keyA, 200)
	operate(t, "PUT", "/llm/overrides", `{"instance":"overridden","consumer":"app-a","rule":"requests per day","limit":5000}`)
	for key, want := range map[string]string{keyA: "overridden requests per day 1/5000", keyB: "overridden requests per day 0/100"} {
		a := g.usage(key)
		if got := strings.Join(a.used(), ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	page := g.do("GET", "/llm/usage", keyA, "", "Accept", "text/html")
	if !strings.Contains(page.Body.String(), "<b>1</b> of 5,000 used") || !strings.Contains(page.Body.String(), "<dd>4,999</dd>") {
		t.Errorf("got %s", page.Body)
	}
}

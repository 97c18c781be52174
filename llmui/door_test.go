package llmui

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const testHost = "127.0.0.1:40123"

// visit is a request in which a test changes what it is about.
type visit struct {
	method, path, host, body string
	header                   map[string]string
}

// inside is a server and the cookie and CSRF token of a browser that came with its link.
func inside(t *testing.T, f *fakeAdmin) (s *server, id, csrf string) {
	t.Helper()
	s = newServer(startFake(t, f), []string{testHost, "localhost:40123"})
	w := do(s, visit{path: s.link()}, "", "")
	for _, c := range w.Result().Cookies() {
		if c.Name == cookie {
			id = c.Value
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != s.base {
				t.Errorf("the cookie is %s", c)
			}
		}
	}
	if w.Code != http.StatusOK || id == "" {
		t.Fatalf("the link answers %d, without a cookie", w.Code)
	}
	r := httptest.NewRequest(http.MethodGet, s.base, nil)
	r.AddCookie(&http.Cookie{Name: cookie, Value: id})
	return s, id, s.sessions.csrf(r)
}

func do(s *server, v visit, id, csrf string) *httptest.ResponseRecorder {
	if v.method == "" {
		v.method = http.MethodGet
	}
	r := httptest.NewRequest(v.method, "http://"+testHost+v.path, strings.NewReader(v.body))
	if v.host != "" {
		r.Host = v.host
	}
	if v.method != http.MethodGet {
		r.Header.Set("Origin", "http://"+r.Host)
		r.Header.Set("Content-Type", "application/json")
	}
	if id != "" {
		r.AddCookie(&http.Cookie{Name: cookie, Value: id})
	}
	if csrf != "" {
		r.Header.Set(csrfField, csrf)
	}
	for name, value := range v.header {
		if value == "" {
			r.Header.Del(name)
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestWhoComesInIsThePersonWithTheLink(t *testing.T) {
	f := &fakeAdmin{}
	s, id, csrf := inside(t, f)
	const override = `{"instance":"apps","consumer":"a","rule":"tokens per hour","limit":200}`
	for _, tc := range []struct {
		name     string
		visit    visit
		id, csrf string
		want     int
	}{
		{"the page", visit{path: ""}, id, "", 200},
		{"its files", visit{path: "style.css"}, id, "", 200},
		{"its scripts ask", visit{path: "api/llm/usage"}, id, csrf, 200},
		{"its scripts change something", visit{method: "PUT", path: "api/llm/overrides", body: override}, id, csrf, 200},
		{"by the name of this machine", visit{path: "api/llm/usage", host: "localhost:40123"}, id, csrf, 200},
		{"what browsers say of the page's own requests", visit{path: "api/llm/usage", header: map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}}, id, csrf, 200},

		{"a name that was made to resolve to this machine", visit{path: "api/llm/usage", host: "evil.test:40123"}, id, csrf, 403},
		{"the address without its port", visit{path: "api/llm/usage", host: "127.0.0.1"}, id, csrf, 403},
		{"another port", visit{path: "api/llm/usage", host: "127.0.0.1:40124"}, id, csrf, 403},
		{"another loopback address", visit{path: "api/llm/usage", host: "127.0.0.2:40123"}, id, csrf, 403},
		{"a name that begins like the address", visit{path: "api/llm/usage", host: "127.0.0.1:40123.evil.test"}, id, csrf, 403},
		{"the page by another name", visit{path: "", host: "evil.test:40123"}, id, "", 403},
		{"the page of another origin asks", visit{path: "api/llm/usage", header: map[string]string{"Origin": "http://evil.test"}}, id, csrf, 403},
		{"another port's page asks", visit{path: "api/llm/usage", header: map[string]string{"Origin": "http://127.0.0.1:8080"}}, id, csrf, 403},
		{"the other name's page asks", visit{path: "api/llm/usage", header: map[string]string{"Origin": "http://localhost:40123"}}, id, csrf, 403},
		{"an https origin", visit{path: "api/llm/usage", header: map[string]string{"Origin": "https://127.0.0.1:40123"}}, id, csrf, 403},
		{"an origin that is hidden", visit{method: "PUT", path: "api/llm/overrides", body: override, header: map[string]string{"Origin": "null"}}, id, csrf, 403},
		{"a change without an origin", visit{method: "PUT", path: "api/llm/overrides", body: override, header: map[string]string{"Origin": ""}}, id, csrf, 403},
		{"another site's request without an origin", visit{path: "api/llm/usage", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}}, id, csrf, 403},
		{"another port's image", visit{path: "icon.svg", header: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}}, id, "", 403},
		{"a frame in another page", visit{path: "", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}}, id, "", 403},

		{"no cookie", visit{path: ""}, "", "", 403},
		{"no cookie, a file", visit{path: "app.js"}, "", "", 403},
		{"no cookie, a question", visit{path: "api/llm/usage"}, "", csrf, 403},
		{"a cookie that was never given", visit{path: ""}, "AAAA", "", 403},
		{"the CSRF token as cookie", visit{path: ""}, csrf, "", 403},
		{"no CSRF token", visit{path: "api/llm/usage"}, id, "", 403},
		{"a wrong CSRF token", visit{method: "PUT", path: "api/llm/overrides", body: override}, id, csrf + "A", 403},
		{"a made-up token", visit{path: "?token=AAAA"}, "", "", 403},
		{"no token", visit{path: "?token="}, "", "", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.came()
			tc.visit.path = s.base + tc.visit.path
			w := do(s, tc.visit, tc.id, tc.csrf)
			if w.Code != tc.want {
				t.Errorf("status %d, want %d: %s", w.Code, tc.want, w.Body)
			}
			if came := f.came(); tc.want != 200 && len(came) > 0 {
				t.Errorf("the admin endpoint got %q", came)
			}
			if h := w.Header(); h.Get("Access-Control-Allow-Origin") != "" || h.Get("Content-Security-Policy") != policy || h.Get("Cache-Control") != "no-store" {
				t.Errorf("header %v", h)
			}
		})
	}
}

func TestLinksWorkOnce(t *testing.T) {
	s := newServer(startFake(t, &fakeAdmin{}), []string{testHost})
	first := s.link()
	second := s.link()
	enter := func(link string, header map[string]string) int {
		return do(s, visit{path: link, header: header}, "", "").Code
	}
	if got := enter(first, nil); got != http.StatusForbidden {
		t.Errorf("a link that another has followed: %d", got)
	}
	elsewhere := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	if got := do(s, visit{method: http.MethodPost, path: second}, "", "").Code; got != http.StatusForbidden {
		t.Errorf("a form that is sent to the link: %d", got)
	}
	if got := enter(second, elsewhere); got != http.StatusOK {
		t.Errorf("a link in a file: %d", got)
	}
	for range 3 {
		if got := enter(second, nil); got != http.StatusForbidden {
			t.Errorf("the link again: %d", got)
		}
	}
	if s.link() == second {
		t.Error("the next link is the same")
	}
}

func TestNothingIsServedBesideTheBase(t *testing.T) {
	s, id, csrf := inside(t, &fakeAdmin{})
	for _, path := range []string{"/", "/index.html", "/api/session", "/?token=x", strings.TrimSuffix(s.base, "/"), s.base + "../api/session", s.base + "nothing", s.base + "api/nothing"} {
		if w := do(s, visit{path: path}, id, csrf); w.Code == http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	other, _, _ := inside(t, &fakeAdmin{})
	if other.base == s.base || len(s.base) < 40 {
		t.Errorf("bases %q and %q", s.base, other.base)
	}
}

func TestOnlyLoopbackIsListenedAt(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "unix//tmp/x", "", "127.0.0.1.example.com:0"} {
		if l, err := listen(address); err == nil {
			l.Close()
			t.Errorf("listens at %q", address)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := listen(address)
		if err != nil {
			t.Fatal(err)
		}
		hosts := hostsOf(l.Addr())
		l.Close()
		if len(hosts) != 2 || !strings.HasPrefix(hosts[0], "127.0.0.1:") || hosts[1] != strings.Replace(hosts[0], "127.0.0.1", "localhost", 1) {
			t.Errorf("%s may be called %q", address, hosts)
		}
	}
}

// What the page loads is there, and what it does not need is not.
func TestThePageHasItsFiles(t *testing.T) {
	s, id, _ := inside(t, &fakeAdmin{})
	for path, kind := range map[string]string{
		"": "text/html", "app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml",
		"vendor/uplot.js": "text/javascript", "vendor/uplot.css": "text/css", "vendor/uplot.LICENSE": "",
	} {
		w := do(s, visit{path: s.base + path}, id, "")
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(got, kind) {
			t.Errorf("%q: %d, %s", path, w.Code, got)
		}
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "innerHTML") {
			t.Errorf("%s makes elements of text", path)
		}
	}
}

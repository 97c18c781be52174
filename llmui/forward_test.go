package llmui

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestWhatThePageAsksForIsForwarded(t *testing.T) {
	f := &fakeAdmin{}
	s, id, csrf := inside(t, f)
	for _, tc := range []struct{ name, method, path, body, want string }{
		{"usage", "GET", "llm/usage?consumer=a%26b&after=x%2Fy&more=1", "", "GET /llm/usage?after=x%2Fy&consumer=a%26b"},
		{"limits", "GET", "llm/limits", "", "GET /llm/limits"},
		{"an override", "PUT", "llm/overrides", `{"limit":1}`, `PUT /llm/overrides {"limit":1}`},
		{"no override", "DELETE", "llm/overrides", `{"rule":"x"}`, `DELETE /llm/overrides {"rule":"x"}`},
		{"an adjustment", "POST", "llm/usage/adjust", `{"amount":-1}`, `POST /llm/usage/adjust {"amount":-1}`},
		{"keys", "GET", "llm/keys", "", "GET /llm/keys"},
		{"a key", "POST", "llm/keys", `{}`, "POST /llm/keys {}"},
		{"a rotation", "POST", "llm/keys/a%20b%3F/rotate", `{"grace":"1h"}`, `POST /llm/keys/a%20b%3F/rotate {"grace":"1h"}`},
		{"a revocation", "DELETE", "llm/keys/k-1", "", "DELETE /llm/keys/k-1"},

		{"usage is not cleared", "DELETE", "llm/usage?consumer=a", "", ""},
		{"a step out of the path", "DELETE", "llm/keys/..", "", ""},
		{"an escaped step", "DELETE", "llm/keys/%2e%2e", "", ""},
		{"an escaped slash", "DELETE", "llm/keys/..%2f..%2fstop", "", ""},
		{"a body that is no JSON", "PUT", "llm/overrides", `limit=1`, ""},
		{"a body that is long", "POST", "llm/keys", `"` + strings.Repeat("x", maxBody) + `"`, ""},
		{"the config", "GET", "config/", "", ""},
		{"all of the config", "GET", "config", "", ""},
		{"an upload", "POST", "load", `{}`, ""},
		{"an end", "POST", "stop", "", ""},
		{"a profile", "GET", "debug/pprof/heap", "", ""},
		{"the metrics", "GET", "metrics", "", ""},
		{"another host", "GET", "//evil.test/llm/usage", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.came()
			w := do(s, visit{method: tc.method, path: s.base + "api/" + tc.path, body: tc.body}, id, csrf)
			got := f.came()
			if tc.want == "" && len(got) > 0 {
				t.Errorf("the admin endpoint got %q", got)
			}
			if tc.want != "" && !slices.Equal(got, []string{tc.want}) {
				t.Errorf("the admin endpoint got %q, want %q", got, tc.want)
			}
			if tc.want == "" && w.Code == http.StatusOK && w.Header().Get(statusField) == "" {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		})
	}
}

// The admin endpoint is told nothing of the browser: it would refuse one, and the cookie
// is none of its business.
func TestTheBrowserIsNotForwarded(t *testing.T) {
	f := &fakeAdmin{}
	s, id, csrf := inside(t, f)
	do(s, visit{path: s.base + "api/llm/usage", header: map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "User-Agent": "Chrome"}}, id, csrf)
	for name, values := range f.header {
		text := strings.Join(values, " ")
		if strings.HasPrefix(name, "Sec-") || name == "Cookie" || name == csrfField || strings.Contains(text, id) || strings.Contains(text, csrf) || strings.Contains(text, "Chrome") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestAnswersSayTheAdminEndpointsStatus(t *testing.T) {
	f := &fakeAdmin{rows: []fakeRow{{Consumer: "a"}, {Consumer: "b"}}, page: 1}
	s, id, csrf := inside(t, f)
	w := do(s, visit{path: s.base + "api/llm/usage"}, id, csrf)
	if w.Code != 200 || w.Header().Get(statusField) != "200" || w.Header().Get("Link") != `</llm/usage?after=1>; rel="next"` {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	w = do(s, visit{path: s.base + "api/llm/keys"}, id, csrf) // which this one does not have
	if w.Code != 200 || w.Header().Get(statusField) != "404" || w.Body.String() != `{"error":"404 page not found"}` {
		t.Errorf("%d, %v, %s", w.Code, w.Header(), w.Body)
	}
}

func TestAnAdminEndpointThatIsAwayIsTold(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	address := gone.Listener.Addr().String()
	gone.Close()
	a, err := newAdmin(address)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(a, []string{testHost})
	id, _ := s.sessions.enter(s.sessions.link())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: cookie, Value: id})
	w := do(s, visit{path: s.base + "api/llm/usage"}, id, s.sessions.csrf(r))
	if w.Header().Get(statusField) != "502" || !strings.Contains(w.Body.String(), "asking the admin endpoint at "+address) {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}

// Over TCP the endpoint checks Host and Origin.
func TestTCPEndpointsSeeTheirOwnOrigin(t *testing.T) {
	var host, origin string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		host, origin = r.Host, r.Header.Get("Origin")
	}))
	defer srv.Close()
	address := srv.Listener.Addr().String()
	a, err := newAdmin(address)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.do(t.Context(), http.MethodGet, "/llm/usage", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if host != address || origin != "http://"+address {
		t.Errorf("host %q, origin %q", host, origin)
	}
}

func TestAdminAddressesThatNameNoSocketAreRefused(t *testing.T) {
	for _, address := range []string{"localhost:1-5", "fd/3", "localhost:x"} {
		if _, err := newAdmin(address); err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Package llmui is the operator's page: consumers against their limits, spend and
// refusals over time, keys, and the limits themselves. `caddy llm-ui` serves it.
//
// Caddy's admin endpoint refuses browsers, so that no page of the web can reach it. This
// server stands between: on a loopback port, for the browser alone that was given its
// one-time link, and for the few paths of the admin endpoint that the page needs.
package llmui

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed page
var page embed.FS

// policy lets the page load what this server has, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// server is the page and what it may ask for.
type server struct {
	admin    *admin
	history  *history
	door     *door
	sessions *sessions
	// base is the path that all others begin with, which nobody can guess. Browsers send
	// cookies to every port of a host; by the path they send this one to this server alone.
	base string
	mux  *http.ServeMux
}

// newServer returns a server for the ports and names by which browsers may call it, such
// as `127.0.0.1:40123`.
func newServer(a *admin, hosts []string) *server {
	s := &server{
		admin: a, history: newHistory(), door: &door{hosts: hosts}, sessions: newSessions(),
		base: "/" + secret() + "/", mux: http.NewServeMux(),
	}
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	s.mux.Handle("GET /", http.FileServerFS(files))
	s.mux.HandleFunc("GET /api/session", s.session)
	s.mux.HandleFunc("GET /api/history", s.showHistory)
	s.mux.HandleFunc("GET /api/config/{name}", s.showConfig)
	s.mux.HandleFunc("PATCH /api/config/{name}", s.editConfig)
	for _, f := range forwarded {
		s.mux.HandleFunc(f.method+" /api"+f.path, s.forward(f))
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")

	if why := s.door.refuses(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, s.base)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if path == "" && r.Method == http.MethodGet && r.URL.Query().Has("token") {
		s.enter(w, r)
		return
	}
	// all but the request by which scripts learn their token
	script := strings.HasPrefix(path, "api/") && path != "api/session"
	if why := s.sessions.refuses(r, script); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	inner := r.Clone(r.Context())
	inner.URL.Path = "/" + path
	inner.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, strings.TrimSuffix(s.base, "/"))
	s.mux.ServeHTTP(w, inner)
}

// enter exchanges the token of a link for a session. The page that it answers leads on
// by itself: had it redirected, a link opened from elsewhere would have come without the
// cookie, which is for requests of this site alone.
func (s *server) enter(w http.ResponseWriter, r *http.Request) {
	id, ok := s.sessions.enter(r.URL.Query().Get("token"))
	if !ok {
		http.Error(w, used, http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: id, Path: s.base, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>LLM limits</title><meta http-equiv="refresh" content="0; url=` + s.base + `">` +
		`<p><a href="` + s.base + `">Go on</a></p></html>`))
}

// link is a path that opens the page once.
func (s *server) link() string {
	return s.base + "?token=" + s.sessions.link()
}

// session tells the page what else it needs to know.
func (s *server) session(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, map[string]any{
		"admin": s.admin.address,
		"csrf":  s.sessions.csrf(r),
	})
}

package llmui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// statusField is the header field in which the page finds the status of the admin
// endpoint's answer. The page is answered 200 whatever that was: that a feature is not
// configured is no mistake of the page, and a browser's console is for those.
const statusField = "X-Admin-Status"

// maxBody bounds what the page may send, in bytes. It sends a few words.
const maxBody = 64 << 10

// forwarding is a request of the page that goes to the admin endpoint as it is.
type forwarding struct {
	method string
	path   string   // with `{id}` for a part that the page chooses
	query  []string // parameters that go with it
	body   bool
}

// forwarded is all that the page may ask of the admin endpoint, beside its edits of
// limits. Nothing else of it can be reached from here: no config, no stop, no profiles.
var forwarded = []forwarding{
	{method: http.MethodGet, path: "/llm/usage", query: []string{"instance", "consumer", "after"}},
	{method: http.MethodPost, path: "/llm/usage/adjust", body: true},
	{method: http.MethodGet, path: "/llm/limits"},
	{method: http.MethodGet, path: "/llm/overrides", query: []string{"instance", "consumer", "after"}},
	{method: http.MethodPut, path: "/llm/overrides", body: true},
	{method: http.MethodDelete, path: "/llm/overrides", body: true},
	{method: http.MethodGet, path: "/llm/keys", query: []string{"after"}},
	{method: http.MethodPost, path: "/llm/keys", body: true},
	{method: http.MethodPost, path: "/llm/keys/{id}/rotate", body: true},
	{method: http.MethodPatch, path: "/llm/keys/{id}", body: true},
	{method: http.MethodDelete, path: "/llm/keys/{id}"},
}

// forward returns the handler of one of them.
func (s *server) forward(f forwarding) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := f.path
		if strings.Contains(path, "{id}") {
			id, err := segment(r.PathValue("id"))
			if err != nil {
				writeError(w, http.StatusBadRequest, err)
				return
			}
			path = strings.Replace(path, "{id}", id, 1)
		}
		q := url.Values{}
		for _, name := range f.query {
			if v := r.URL.Query().Get(name); v != "" {
				q.Set(name, v)
			}
		}
		if len(q) > 0 {
			path += "?" + q.Encode()
		}
		var body []byte
		if f.body {
			var err error
			if body, err = readBody(w, r); err != nil {
				writeError(w, http.StatusBadRequest, err)
				return
			}
		}
		ctx := r.Context()
		if f.method != http.MethodGet {
			ctx = context.WithoutCancel(ctx) // a change goes on when its page is closed
		}
		resp, err := s.admin.do(ctx, f.method, path, nil, body)
		if err != nil {
			writeError(w, http.StatusBadGateway, err)
			return
		}
		pass(w, resp)
	}
}

// segment escapes a part of a path. The dots would be taken for steps.
func segment(s string) (string, error) {
	if s == "" || s == "." || s == ".." || strings.Contains(s, "/") {
		return "", errors.New("`" + s + "` is no name for a part of a path")
	}
	return url.PathEscape(s), nil
}

var errBody = errors.New("the body must be JSON, of at most " + strconv.Itoa(maxBody) + " bytes")

// readBody reads what the page sent: JSON, or nothing.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, errBody
	}
	if len(body) == 0 {
		return nil, nil
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" || !json.Valid(body) {
		return nil, errBody
	}
	return body, nil
}

// pass hands an answer of the admin endpoint on. Errors that are not JSON, such as that
// of a path nobody serves, are made such.
func pass(w http.ResponseWriter, resp *http.Response) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= http.StatusBadRequest && kind != "application/json" {
		text, err := read(resp)
		if err != nil {
			writeError(w, http.StatusBadGateway, err)
			return
		}
		writeError(w, resp.StatusCode, errors.New(strings.TrimSpace(string(text))))
		return
	}
	defer resp.Body.Close()
	h := w.Header()
	h.Set(statusField, strconv.Itoa(resp.StatusCode))
	h.Set("Content-Type", "application/json")
	if link := resp.Header.Get("Link"); link != "" {
		h.Set("Link", link)
	}
	_, _ = io.Copy(w, resp.Body) // who is cut off sees that it is no JSON
}

// writeError answers as the admin endpoint does.
func writeError(w http.ResponseWriter, status int, err error) {
	w.Header().Set(statusField, strconv.Itoa(status))
	writeJSON(w, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

package usage

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// SetModel returns a JSON body with another model and true, or body itself and false
// where it is no object or names none, or the model is no [ModelName]. Every other byte stays as it was, and body is not
// changed. Body must have passed [ParseRequest], which lets no member `model` stand twice.
func SetModel(body []byte, model string) ([]byte, bool) {
	at := gjson.GetBytes(body, "model")
	if at.Type != gjson.String || at.Index == 0 || !ModelName(model) {
		return body, false
	}
	name, err := json.Marshal(model)
	if err != nil {
		return body, false
	}
	out := make([]byte, 0, len(body)-len(at.Raw)+len(name))
	out = append(out, body[:at.Index]...)
	out = append(out, name...)
	return append(out, body[at.Index+len(at.Raw):]...), true
}

// ModelName tells whether a request can ask for a model by that name: [ParseRequest]
// refuses others, since who reads one that is not UTF-8 may read another.
func ModelName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsRune(name, utf8.RuneError)
}

// SetModel puts another model into a path that names the endpoint's, and is false where
// the path does not show it as it stands in Model.
func (e Endpoint) SetModel(u *url.URL, model string) bool {
	if e.Model == "" || !ModelName(model) {
		return false
	}
	path := u.Path
	for end := len(path); ; {
		at := strings.LastIndex(path[:end], "/"+e.Model)
		if at < 0 {
			return false
		}
		before, after := path[:at+1], path[at+1+len(e.Model):]
		if after != "" && after[0] != '/' && after[0] != ':' {
			end = at + len(e.Model) // only begins like it
			continue
		}
		u.Path = before + model + after
		// a slash within the name is none of the path's
		u.RawPath = escapePath(before) + url.PathEscape(model) + escapePath(after)
		return true
	}
}

// escapePath escapes a part of a path, and no slash.
func escapePath(p string) string { return (&url.URL{Path: p}).EscapedPath() }

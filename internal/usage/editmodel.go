package usage

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// SetModel returns the three pieces of a JSON body with another model: its name as JSON, and
// what stands before and after it, which is the memory of body. It is false where body is no
// object or names none, or the model is no [ModelName]. Body must have passed [ParseRequest],
// which lets no member `model` stand twice.
func SetModel(body []byte, model string) (before, name, after []byte, ok bool) {
	at := gjson.GetBytes(body, "model")
	if at.Type != gjson.String || at.Index == 0 || !ModelName(model) {
		return nil, nil, nil, false
	}
	name, err := json.Marshal(model)
	if err != nil {
		return nil, nil, nil, false
	}
	end := at.Index + len(at.Raw)
	return body[:at.Index:at.Index], name, body[end:], true
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

package llmretry

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// verdict is what the beginning of a body tells.
type verdict uint8

const (
	unclear verdict = iota // too little has come
	content                // an answer, or nothing that is known
	failure                // an error
)

// firstEvent is a peek at the first event of a stream.
func firstEvent(p []byte) (verdict, int) {
	p = bytes.TrimPrefix(p, []byte("\ufeff"))
	var name, data []byte
	for {
		line, rest, whole := cutLine(p)
		if !whole {
			return unclear, 0
		}
		p = rest
		if len(line) == 0 {
			switch {
			case data == nil:
				name = nil // an event without data is none
				continue
			case isError(string(name), data):
				return failure, errorStatus(data)
			}
			return content, 0
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = value
		case "data":
			if data != nil {
				value = bytes.Join([][]byte{data, value}, []byte("\n"))
			}
			data = value[:len(value):len(value)]
		}
	}
}

// cutLine cuts a line off that ends in LF, CRLF or CR.
func cutLine(p []byte) (line, rest []byte, whole bool) {
	end := bytes.IndexAny(p, "\r\n")
	if end < 0 {
		return nil, p, false
	}
	rest = p[end+1:]
	if p[end] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return p[:end], rest, true
}

// isError tells whether an event is an error, in the words of any of the APIs.
func isError(name string, data []byte) bool {
	if name == "error" {
		return true
	}
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	switch gjson.GetBytes(data, "type").Str {
	case "error", "response.failed":
		return true
	}
	e := gjson.GetBytes(data, "error")
	return e.IsObject() || e.Type == gjson.String && e.Str != ""
}

// firstMember is a peek at the first member of a JSON document. An answer may have a member
// `error` too, but does not begin with it.
func firstMember(p []byte) (verdict, int) {
	v, rest := begins(p, "{", `"error"`, ":")
	switch {
	case v == failure && len(rest) == 0:
		return unclear, 0
	case v == failure && rest[0] != '{' && rest[0] != '"':
		return content, 0 // null
	case v == content:
		v, _ = begins(p, "{", `"type"`, ":", `"error"`)
	}
	return v, 0
}

// begins is failure if a document begins with these tokens, and returns what follows.
func begins(p []byte, tokens ...string) (v verdict, rest []byte) {
	const space = " \t\r\n"
	rest = bytes.TrimLeft(p, space)
	for _, token := range tokens {
		if len(rest) < len(token) && strings.HasPrefix(token, string(rest)) {
			return unclear, nil
		}
		if !bytes.HasPrefix(rest, []byte(token)) {
			return content, nil
		}
		rest = bytes.TrimLeft(rest[len(token):], space)
	}
	return failure, rest
}

// statuses are those that errors stand for, by what stands in their code, type or status.
// The first that fits counts.
var statuses = []struct {
	word   string
	status int
}{
	{"rate_limit", http.StatusTooManyRequests},
	{"insufficient_quota", http.StatusTooManyRequests},
	{"resource_exhausted", http.StatusTooManyRequests},
	{"throttl", http.StatusTooManyRequests},
	{"overloaded", statusOverloaded},
	{"unavailable", http.StatusServiceUnavailable},
	{"timeout", http.StatusGatewayTimeout},
	{"deadline_exceeded", http.StatusGatewayTimeout},
	{"authentication", http.StatusUnauthorized},
	{"permission", http.StatusForbidden},
	{"not_found", http.StatusNotFound},
	{"too_large", http.StatusRequestEntityTooLarge},
	{"invalid", http.StatusBadRequest},
	{"context_length", http.StatusBadRequest},
	{"content_", http.StatusBadRequest}, // filters and policies
	{"validation", http.StatusBadRequest},
}

// errorStatus is the status that an error stands for which came with 200.
func errorStatus(data []byte) int {
	e := gjson.GetBytes(data, "error")
	if !e.IsObject() {
		if e = gjson.GetBytes(data, "response.error"); !e.IsObject() {
			e = gjson.ParseBytes(data)
		}
	}
	for _, name := range []string{"code", "status", "http_code"} {
		if n := e.Get(name).Int(); n >= 400 && n <= 599 {
			return int(n)
		}
	}
	said := strings.ToLower(e.Get("code").Str + " " + e.Get("type").Str + " " + e.Get("status").Str)
	for _, s := range statuses {
		if strings.Contains(said, s.word) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

package usage

import (
	"net/http"
	"strings"
)

// methodOverrides are the headers by which some servers let a client change the method
// of its request, in canonical form.
var methodOverrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// StripMethodOverride deletes the headers that ask a server to take the request for one
// of another method.
func StripMethodOverride(h http.Header) {
	for _, name := range methodOverrides {
		if h[name] != nil { // others may be reading a header that has none
			delete(h, name)
		}
	}
}

func overridesMethod(h http.Header) bool {
	for _, name := range methodOverrides {
		if len(h[name]) > 0 {
			return true
		}
	}
	return false
}

// LeavesHTTP tells whether a call asks for a connection of its own.
func (c Class) LeavesHTTP() bool { return c == Upgrade || c == Realtime }

// StripUpgrade takes offers to upgrade out of the header of a call, unless a connection
// of its own is what the call is for.
func (e Endpoint) StripUpgrade(h http.Header) {
	if !e.Class.LeavesHTTP() {
		StripUpgrade(h)
	}
}

// StripUpgrade deletes what asks to leave HTTP, or to change its version: Upgrade,
// HTTP2-Settings and their names in Connection, whose other names stay. A proxy would
// forward the offer, whatever it is for.
func StripUpgrade(h http.Header) {
	delete(h, "Upgrade")
	delete(h, "Http2-Settings")
	lines := h["Connection"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if name != "" && !strings.EqualFold(name, "Upgrade") && !strings.EqualFold(name, "HTTP2-Settings") {
				kept = append(kept, name)
			}
		}
	}
	if len(kept) == 0 {
		delete(h, "Connection")
		return
	}
	h["Connection"] = []string{strings.Join(kept, ", ")}
}

// RequestEncoding is the Content-Encoding of a request for [DecodeBody]: the lines of a
// header that comes several times are one list.
func RequestEncoding(h http.Header) string {
	lines := h["Content-Encoding"]
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ",")
}

package llmui

import (
	"net/http"
	"slices"
)

// door is who may come in before anything else is looked at.
type door struct {
	hosts []string // host:port, as browsers write it
}

// refuses says why a request is refused, or nothing. A page of the web that has its own
// name resolve to this machine sends that name as Host, and one that posts here its own
// Origin. Browsers say of a request what site it came from in Sec-Fetch-Site; it is
// `none` where a person typed the address.
func (d *door) refuses(r *http.Request) string {
	if !slices.Contains(d.hosts, r.Host) {
		return "This page answers only under the address that caddy llm-ui printed."
	}
	origin := r.Header.Values("Origin")
	switch {
	case len(origin) > 1 || len(origin) == 1 && origin[0] != "http://"+r.Host:
		return "Requests of other pages are refused."
	case len(origin) == 0 && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return "A change needs an Origin."
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	// A link may stand in a file or a chat; what it opens has no cookie yet.
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return ""
	}
	return "Requests of other pages are refused."
}

package meter

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// route tells apart what calls of a model may be like: the same name stands for a short
// chat on one host and for long documents on another, and for another server perhaps.
type route struct {
	host string
	api  usage.API
}

// routeOf is the route of a request. Its host counts only where the config names it: who
// could invent hosts would have one of which nothing, or only little use, is known, and
// be expected to use less than others.
func routeOf(server *caddyhttp.Server, host string, api usage.API) route {
	return route{namedHost(server, host), api}
}

// serverOf is the server that has a request; nil outside of Caddy.
func serverOf(r *http.Request) *caddyhttp.Server {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return server
}

// namedHost is the host that a request is for, if a route of the server is for that host
// and not for any; else it is empty.
func namedHost(server *caddyhttp.Server, host string) string {
	if server == nil {
		return ""
	}
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i] // a port
	}
	host = strings.Trim(host, "[]")
	for i := range server.Routes {
		for _, set := range server.Routes[i].MatcherSets {
			for _, matcher := range set {
				if name, ok := hostIn(matcher, host); ok {
					return name
				}
			}
		}
	}
	return ""
}

// hostIn finds a host among those of a matcher, as the config writes it: that name is not
// the client's and may be kept.
func hostIn(matcher any, host string) (string, bool) {
	var hosts caddyhttp.MatchHost
	switch m := matcher.(type) {
	case *caddyhttp.MatchHost:
		hosts = *m
	case caddyhttp.MatchHost:
		hosts = m
	}
	for _, name := range hosts {
		if strings.EqualFold(name, host) {
			return name, true
		}
	}
	return "", false
}

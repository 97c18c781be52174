package llmlimits

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func init() {
	caddy.RegisterModule(MatchResource{})
}

// MatchResource matches calls by their path as the `path` matcher does, in its patterns,
// but however the path is spelled: what lenient upstreams take for the same endpoint is
// the same resource. A slash at the end, parameters behind a semicolon, backslashes, white
// space and escapes that were escaped again make no difference.
type MatchResource []string

// CaddyModule returns the Caddy module information.
func (MatchResource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.matchers.llm_resource",
		New: func() caddy.Module { return new(MatchResource) },
	}
}

// Provision puts the patterns into lower case.
func (m MatchResource) Provision(ctx caddy.Context) error {
	return caddyhttp.MatchPath(m).Provision(ctx)
}

// MatchWithError reports whether the path, as it was sent or in another spelling, is of a
// pattern. Paths that servers may read in several ways match if one reading does: no
// caller gets past a limit by them.
func (m MatchResource) MatchWithError(r *http.Request) (bool, error) {
	patterns := caddyhttp.MatchPath(m)
	if ok, err := patterns.MatchWithError(r); ok || err != nil {
		return ok, err
	}
	for _, p := range usage.Spellings(r.URL.Path) {
		u, spelled := *r.URL, *r
		u.Path, u.RawPath = p, ""
		spelled.URL = &u
		if ok, err := patterns.MatchWithError(&spelled); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// Match is MatchWithError for callers that know no errors.
func (m MatchResource) Match(r *http.Request) bool {
	ok, _ := m.MatchWithError(r)
	return ok
}

// Interface guards
var (
	_ caddy.Provisioner                 = MatchResource{}
	_ caddyhttp.RequestMatcherWithError = MatchResource{}
)

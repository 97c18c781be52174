package llmlimits

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestNoSpellingOfAPathEscapesItsResource(t *testing.T) {
	for _, tc := range []struct {
		pattern, path string
		want          bool
	}{
		{"/v1/images/generations", "/v1/images/generations", true},
		{"/v1/images/generations", "/v1/images/generations/", true},
		{"/v1/images/generations", "/V1//Images/./Generations/.", true},
		{"/v1/images/generations", "/v1/images/generations;x=1", true},
		{"/v1/images/generations", "/v1/images;x/generations", true},
		{"/v1/images/generations", "/v1/images%5Cgenerations", true},
		{"/v1/images/generations", "/v1/images/generations%20", true},
		{"/v1/images/generations", "/v1/images/generations%2F", true},
		{"/v1/images/generations", "/v1/images%252Fgenerations", true},
		{"/v1/images/generations", "/v1/images/generations%253Fx", true},
		{"/v1/images/generations", "/v1/images/generations%23x", true},
		{"/v1/images/generations", "/x/../v1/images/generations/", true},
		{"/v1/images/generations", "/v1/images/generations/x", false},
		{"/v1/images/generations", "/v1/images", false},
		{"*/embeddings", "/openai/embeddings/", true},
		{"*/embeddings", "/embeddings/x", false},
		{"/v1/images/*", "/v1/images%252Fedits", true},
		{"/v1/images/*", "/v1/images/", true},
		{"/v1/*/job", "/v1/a/job;", true},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, nil)
		r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer()))
		m := MatchResource{tc.pattern}
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		got, err := m.MatchWithError(r)
		if err != nil || got != tc.want {
			t.Errorf("%s matches %s: %t (%v), want %t", tc.pattern, tc.path, got, err, tc.want)
		}
		if r.URL.RequestURI() == "" || m.Match(r) != got {
			t.Errorf("%s: the call was changed", tc.path)
		}
	}
}

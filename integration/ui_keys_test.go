//go:build unix

package integration

import (
	"net/http"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/internal/browsertest"
	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

func TestUIBeginsAnewWhereKeysAreLost(t *testing.T) {
	server := redistest.Start(t)
	g := newKeysGateways(t, redisStore(server.Addr(), "timeout 10s"))
	p := g.run(t.TempDir())
	_, key := g.key(p, "new")
	g.becomes(p, key, http.StatusOK)
	c := server.Client()
	defer c.Close()
	if err := c.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	g.becomes(p, apikey.New(), http.StatusServiceUnavailable)
	link := openUI(t, &gateway{t: t, admin: p.admin})
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/anew.mjs", URL: link, Args: uiArgs{Gateway: "http://" + p.addr, Key: key}}, nil)
}

package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/browsertest"
)

// usagePage is what a script says of the page of llm_usage.
type usagePage struct {
	Title, Text string
	Bars        [][]any // name, what it says, value, most
}

// look opens the page of llm_usage as a key's caller, and has pictures made of these views.
func (g *gateway) look(name, key string, views ...string) (p usagePage) {
	g.t.Helper()
	browsertest.Run(g.t, browsertest.Script{
		Path: "testdata/usage_page.mjs", URL: "http://" + g.addr + "/llm/usage",
		Args: map[string]any{"key": key, "name": name, "views": views},
	}, &p)
	return p
}

func TestUsagePageInABrowser(t *testing.T) {
	t.Parallel()
	g := startApart(t, newUpstream(t, nil), `{site} {`+strings.Replace(auth, "application app-a", "application app-a\n\t\t\tgroup gold", 1)+`
		llm_usage
		llm_cost {
			price * {
				input 2.50
				output 10
			}
		}
		token_limit {name} {
			consumer_based
			limit 2 requests per week burst 2
			limit 1M tokens per day
			limit 10k output_tokens per rolling 7d
			limit 8 concurrent
			group gold {
				limit 3 requests per week burst 3
				limit 200 tokens per day
				limit 10k output_tokens per rolling 7d
				limit 8 concurrent
				model gpt-* {
					limit 1_500 uncached_tokens per hour
					per_model
				}
				model qwen-vl* {
					limit 50 images per day
					limit 3600 audio_seconds per month
				}
			}
		}
		cost_limit {name}-cost {
			consumer_based
			limit $10 per month
		}
		reverse_proxy {upstream}
	}`)
	for range 3 {
		if a := g.chat(keyA); a.Status != http.StatusOK {
			t.Fatalf("got %d: %s", a.Status, a.Body)
		}
	}
	p := g.look("usage", keyA, "desktop")
	if p.Title != "Usage of app-a" || !strings.Contains(p.Text, "Group\ngold") || strings.Contains(p.Text, "app-b") {
		t.Errorf("the page %q says\n%s", p.Title, p.Text)
	}
	want := []any{"Tokens per day", "180 used of 200", 900.0, 1000.0}
	if !slices.ContainsFunc(p.Bars, func(b []any) bool { return slices.Equal(b, want) }) || len(p.Bars) != 8 {
		t.Errorf("got %v, want %v among 8", p.Bars, want)
	}

	// nothing is left of the requests, and it still answers
	if a := g.chat(keyA); a.Status != http.StatusTooManyRequests {
		t.Errorf("got %d: %s", a.Status, a.Body)
	}
	if spent := g.look("spent", keyA, "desktop", "dark", "phone", "phone-dark", "wide"); !strings.Contains(spent.Text, "Nothing is left of 1 of 8 limits:") {
		t.Errorf("the page says\n%s", spent.Text)
	}
}

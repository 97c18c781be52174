package tokenlimit_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestQuotasOfGroups holds groups to what is promised of them, over every store.
func TestQuotasOfGroups(t *testing.T) {
	const groups = `
		limit 5 requests per day
		group gold {
			limit 4 requests per day
			model qwen* {
				limit 3 requests per day
			}
		}
		group free {
			limit 2 requests per day
		}
		groups {
			gold alice
			free bob default
		}
		group_key {header.X-Tier}`

	eachStore(t, func(t *testing.T, start starter) {
		t.Run("the config comes first, then group_key, the key's group and default_group", func(t *testing.T) { // 16
			for _, tc := range []struct {
				name, lines, app string
				headers          []string
				limit            string
			}{
				{"the config", groups, "alice", []string{"X-Tier", "free", "X-Group", "free"}, "4"},
				{"the config, of callers without an application", groups, "", nil, "2"},
				{"group_key", groups, "carol", []string{"X-Tier", "free", "X-Group", "gold"}, "2"},
				{"the key's group", groups, "carol", []string{"X-Group", "gold"}, "4"},
				{"no group", groups, "carol", nil, "5"},
				{"a default group", groups + "\ndefault_group free", "carol", nil, "2"},
				{"a group that is unknown", groups + "\ndefault_group free", "carol", []string{"X-Tier", "nobody"}, "2"},
				{"a group that is unknown, without a default", groups, "carol", []string{"X-Group", "nobody"}, "5"},
			} {
				t.Run(tc.name, func(t *testing.T) {
					w := start(t, tc.lines).ask(tc.app, "gpt-4o", "", tc.headers...)
					want(t, w, 200)
					has(t, w, "X-RateLimit-Limit", tc.limit)
				})
			}
		})

		t.Run("who moves keeps what is used", func(t *testing.T) { // 17
			q := start(t, groups)
			for range 2 {
				want(t, q.ask("carol", "qwen-max", "", "X-Group", "gold"), 200)
			}
			want(t, q.ask("carol", "qwen-max", "", "X-Group", "free"), 429)
			w := q.ask("carol", "qwen-max", "", "X-Group", "gold")
			want(t, w, 200)
			has(t, w, "X-RateLimit-Remaining", "0", "RateLimit-Policy", `"requests per day (qwen*)";q=3;w=86400`)
			want(t, q.ask("carol", "qwen-max", "", "X-Group", "gold"), 429)
			want(t, q.ask("carol", "gpt-4o", "", "X-Group", "gold"), 200)
			want(t, q.ask("carol", "gpt-4o", "", "X-Group", "gold"), 429)
			want(t, q.ask("carol", "gpt-4o", ""), 200)
			want(t, q.ask("carol", "gpt-4o", ""), 429)
			want(t, q.ask("dave", "gpt-4o", ""), 200)
			q.uses("carol", "requests per day", 5)
		})

		t.Run("without groups all is as plain limits have it", func(t *testing.T) { // 18
			var answers []string
			for _, lines := range []string{
				"limit 2 requests per day\nmodel qwen* {\nlimit 1 requests per day\n}",
				"limit 9 requests per day\ngroup all {\nlimit 2 requests per day\nmodel qwen* {\nlimit 1 requests per day\n}\n}\ndefault_group all",
			} {
				q := start(t, lines)
				var all strings.Builder
				for _, model := range []string{"qwen-max", "qwen-max", "gpt-4o", "gpt-4o"} {
					for _, app := range []string{"alice", "bob"} {
						w := q.ask(app, model, "")
						fmt.Fprintln(&all, w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("RateLimit-Policy"))
					}
				}
				answers = append(answers, all.String())
			}
			if answers[0] != answers[1] || !strings.Contains(answers[0], "429") {
				t.Errorf("plain:\n%s\ngrouped:\n%s", answers[0], answers[1])
			}
		})
	})
}

func TestCallersInNoGroupMayBeRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "unlisted deny\ngroup gold {\nmodel qwen* {\nlimit 9 requests per day\n}\n}\ngroup silver {\nlimit 9 requests per day\n}")
		want(t, q.ask("alice", "qwen-max", "", "X-Group", "gold"), 200)
		want(t, q.ask("alice", "gpt-4o", "", "X-Group", "gold"), 403)
		want(t, q.ask("alice", "gpt-4o", "", "X-Group", "silver"), 200) // it is limited in all models
		want(t, q.ask("alice", "qwen-max", ""), 403)
	})
}

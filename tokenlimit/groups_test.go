package tokenlimit_test

import (
	"fmt"
	"net/http/httptest"
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
				logged           any
			}{
				{"the config", groups, "alice", []string{"X-Tier", "free", "X-Group", "free"}, "4", "gold"},
				{"the config, of callers without an application", groups, "", nil, "2", "free"},
				{"group_key", groups, "carol", []string{"X-Tier", "free", "X-Group", "gold"}, "2", "free"},
				{"the key's group", groups, "carol", []string{"X-Group", "gold"}, "4", "gold"},
				{"no group", groups, "carol", nil, "5", nil},
				{"a default group", groups + "\ndefault_group free", "carol", nil, "2", "free"},
				{"a group that is unknown", groups + "\ndefault_group free", "carol", []string{"X-Tier", "nobody"}, "2", "free"},
				{"a group that is unknown, without a default", groups, "carol", []string{"X-Group", "nobody"}, "5", nil},
			} {
				t.Run(tc.name, func(t *testing.T) {
					q := start(t, tc.lines)
					w := q.ask(tc.app, "gpt-4o", "", tc.headers...)
					want(t, w, 200)
					has(t, w, "X-RateLimit-Limit", tc.limit)
					if got := q.logged()["group"]; got != tc.logged {
						t.Errorf("logged the group %v, want %v", got, tc.logged)
					}
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

// The log names the group whose limits held a call, also one that was refused.
func TestTheLogNamesTheGroupThatLimits(t *testing.T) {
	const own = "limit 1 requests per day\ngroup gold {\nlimit 9 requests per day\nmodel vl {\nlimit 1 video_seconds per day\n}\n}\ngroups {\ngold alice\n}"
	q := quotasOf(t, "", "resolved", own)
	logs := func(w *httptest.ResponseRecorder, status int, group any) {
		t.Helper()
		want(t, w, status)
		if got := q.logged()["group"]; got != group {
			t.Errorf("logged the group %v, want %v", got, group)
		}
	}
	logs(q.ask("alice", "m", "", "X-Group", "free"), 200, "gold")
	logs(q.do("POST", "/v1/chat/completions", `{"model":"m","model":"n"}`, "X-App", "alice", "X-Group", "free"), 400, "gold")
	logs(q.do("POST", "/v1/batches", `{}`, "X-App", "alice", "X-Group", "free"), 403, "gold")
	logs(q.ask("bob", "m", "", "X-Group", "unknown"), 200, nil)
	logs(q.ask("bob", "m", "", "X-Group", "unknown"), 429, nil)

	// where no limiter has groups, it is the key's
	q = quotasOf(t, "", "unresolved", "limit 9 requests per day")
	logs(q.ask("alice", "m", "", "X-Group", "free"), 200, "free")

	// the first that has groups decides
	q = &quotas{gateway: start(t, "", "vars llm_group {header.X-Group}\ntoken_limit none {\nlimit 9 requests per day\n}\n"+
		"token_limit outer {\nconsumer_based\n"+own+"\n}\n"+
		"token_limit inner {\nconsumer_based\nlimit 9 requests per day\ngroup silver {\nlimit 9 requests per day\n}\ndefault_group silver\n}\ntest_upstream")}
	logs(q.ask("alice", "m", "", "X-Group", "silver"), 200, "gold")
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

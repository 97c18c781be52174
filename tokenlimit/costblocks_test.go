package tokenlimit_test

import (
	"encoding/json"
	"testing"
)

// Budgets have models and groups as other limits do, and the prices of each model.
func TestBudgetsOfModelsAndGroups(t *testing.T) {
	g := start(t, "", `vars llm_group {header.X-Group}
	llm_cost {
		price cheap* {
			input 1
			output 1
		}
		price dear* {
			input 1000
			output 1000
		}
	}
	cost_limit budgets {
		consumer_based
		mode charge_after
		limit $10 per day
		model dear* {
			limit $0.02 per day
			per_model
		}
		group gold {
			limit $10 per day
			model dear* {
				limit $0.05 per day
				per_model
			}
		}
	}
	test_upstream`)
	q := &quotas{gateway: g, name: "budgets"}
	used := func(app, rule, model string) string {
		var rows []struct{ Rule, Model, Used string }
		if err := json.Unmarshal(admin(t, "/llm/usage?instance=budgets&consumer="+app), &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Rule == rule && r.Model == model {
				return r.Used
			}
		}
		return ""
	}
	answer = servedBy("dear-1", 10, 5)
	for _, status := range []int{200, 200, 429} {
		want(t, q.ask("alice", "dear-1", ""), status)
	}
	answer = servedBy("dear-2", 10, 5)
	want(t, q.ask("alice", "dear-2", ""), 200)
	answer = servedBy("cheap", 10, 5)
	want(t, q.ask("alice", "cheap", ""), 200)
	answer = servedBy("dear-1", 10, 5)
	want(t, q.ask("alice", "dear-1", "", "X-Group", "gold"), 200)
	for _, tc := range [][3]string{
		{"usd per day (dear*)", "dear-1", "0.045"}, {"usd per day (dear*)", "dear-2", "0.015"}, {"usd per day", "", "0.060015"},
	} {
		if got := used("alice", tc[0], tc[1]); got != tc[2] {
			t.Errorf("%s %s: got %s, want %s", tc[0], tc[1], got, tc[2])
		}
	}
	want(t, q.ask("bob", "dear-1", ""), 200)
}

func TestLimitsShowModelsAndGroups(t *testing.T) {
	start(t, "", `token_limit shown {
		consumer_based
		limit 9 requests per day
		model Qwen* glm* {
			limit 5 images per day shadow
			limit 60 audio_seconds per hour
			type ocr
			per_model
		}
		group gold {
			limit 1k requests per day
		}
	}
	test_upstream`)
	var got struct{ Limits []json.RawMessage }
	if err := json.Unmarshal(admin(t, "/llm/limits"), &got); err != nil {
		t.Fatal(err)
	}
	const want = `{"instance":"shown","directive":"token_limit","shared":false,"key":["application"],"mode":"reserve","rules":[` +
		`{"rule":"requests per day","unit":"requests","limit":9},` +
		`{"rule":"images per day (Qwen* glm*)","unit":"images","limit":5,"shadow":true,"models":["qwen*","glm*"],"per_model":true,"type":"ocr"},` +
		`{"rule":"audio_seconds per hour (Qwen* glm*)","unit":"audio_seconds","limit":60,"models":["qwen*","glm*"],"per_model":true,"type":"ocr"},` +
		`{"rule":"requests per day","unit":"requests","limit":1000,"group":"gold"}]}`
	if len(got.Limits) != 1 || string(got.Limits[0]) != want {
		t.Errorf("got  %s\nwant %s", got.Limits, want)
	}
}

// A model belongs to one block of an llm_limits, whichever kind of limit that has.
func TestBlocksOfBothKindsOfLimitsAreOneList(t *testing.T) {
	g := start(t, "", "llm_limits kinds {\nconsumer {\nmodel gpt-5-mini* {\nlimit $10 per day\n}\nmodel gpt-5* {\nlimit 1 requests per hour\n}\nunlisted deny\n}\n}\ntest_upstream")
	q := &quotas{gateway: g, name: "kinds"}
	answer = servedBy("gpt-5", 10, 5)
	for _, tc := range []struct {
		model    string
		statuses []int
	}{
		{"gpt-5-mini", []int{200, 200}}, // the first block has it, and no limit of requests
		{"gpt-5", []int{200, 429}},
		{"gpt-4o", []int{403}},
	} {
		for _, status := range tc.statuses {
			want(t, q.ask("kinds", tc.model, ""), status)
		}
	}
}

// A block without limits frees its models of the blocks behind it.
func TestABlockWithoutLimitsClaimsItsModels(t *testing.T) {
	q := quotasOf(t, "", "claims", "unlisted deny\nmodel gpt-5-nano {\nper_model\n}\nmodel gpt-5* {\nlimit 1 requests per hour\n}")
	for _, status := range []int{200, 200} {
		want(t, q.ask("alice", "gpt-5-nano", ""), status)
	}
	for _, status := range []int{200, 429} {
		want(t, q.ask("alice", "gpt-5", ""), status)
	}
}

package tokenlimit_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

func TestNamesOfOneModelHaveOneCounter(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model gpt-4o:latest {\nlimit 99 requests per day\nper_model\n}\nmodel * {\nlimit 99 requests per day\nper_model\n}")
		for _, name := range []string{"gpt-4o", "GPT-4o", "openai/gpt-4o", "gpt-4o-2024-08-06", "openrouter/openai/gpt-4o:nitro", "models/gpt-4o:latest"} {
			want(t, q.ask("alice", name, ""), 200)
		}
		for _, name := range []string{"gpt-4o-mini", "models/gpt-4o-mini", "gpt-4o-mini-2024-07-18"} {
			want(t, q.ask("alice", name, ""), 200)
		}
		want(t, q.do("POST", "/openai/deployments/gpt-4o-mini/chat/completions", `{"messages":[]}`, "X-App", "alice"), 200)
		want(t, q.do("POST", "/v1beta/models/gemini-2.5-pro:generateContent", `{"contents":[]}`, "X-App", "alice"), 200)
		want(t, q.do("POST", "/model/eu.amazon.nova-lite-v1%3A0/converse", `{"messages":[]}`, "X-App", "alice"), 200)
		q.uses("alice", "requests per day (gpt-4o:latest) [gpt-4o]", 6)
		q.uses("alice", "requests per day (*) [gpt-4o-mini]", 4)
		q.uses("alice", "requests per day (*) [gemini-2.5-pro]", 1)
		q.uses("alice", "requests per day (*) [nova-lite]", 1)
	})
}

func TestAModelInAFormBelongsToItsBlock(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model whisper* {\nlimit 1 requests per day\n}")
		form := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--b--\r\n"
		for _, status := range []int{200, 429} {
			want(t, q.do("POST", "/v1/audio/transcriptions", form, "X-App", "alice", "Content-Type", "multipart/form-data; boundary=b"), status)
		}
	})
}

// A client that invents names gets a hundred counters and one that the rest share,
// however many it invents, and takes none from models that the config names.
func TestInventedModelsAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model qwen-max * {\nlimit 3 requests per day\nper_model\n}")
		for i := range 100 {
			want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
		}
		for i := range 3 {
			want(t, q.ask("alice", fmt.Sprint("late", i), ""), 200)
		}
		want(t, q.ask("alice", "later", ""), 429)
		want(t, q.ask("alice", "m7", ""), 200)
		want(t, q.ask("alice", "qwen-max", ""), 200)
		want(t, q.ask("bob", "later", ""), 200)
		q.uses("alice", "requests per day (qwen-max *) [other]", 3)
		q.uses("alice", "requests per day (qwen-max *) [m7]", 2)
		q.uses("alice", "requests per day (qwen-max *) [qwen-max]", 1)
		if n := len(q.rows("alice")); n != 102 {
			t.Errorf("got %d counters, want 102", n)
		}
	})
}

// A model that came too late asks the store once for a call, as any other does.
func TestModelsThatShareCostNoMoreThanOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model * {\nlimit 1M requests per day\nper_model\n}")
		for i := range 100 {
			want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
		}
		want(t, q.ask("alice", "late", ""), 200)
		// another process may not have met those that have counters of their own
		q.reload(t, "model * {\nlimit 1M requests per day\nper_model\n}")
		for _, model := range []string{"m7", "late"} {
			before := admissions(t)
			for range 10 {
				want(t, q.ask("alice", model, ""), 200)
			}
			if asked := admissions(t) - before; asked != 10 {
				t.Errorf("%s: the store was asked %d times for 10 calls", model, asked)
			}
		}
		q.uses("alice", "requests per day (*) [other]", 11)
	})
}

// admissions is how often the store was asked to admit something.
func admissions(t *testing.T) uint64 {
	t.Helper()
	ctx := caddy.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "llm_store_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "reserve" {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	t.Fatal("no metric tells")
	return 0
}

// Calls that are refused, here or further in, take no place from those that are not.
func TestRefusedCallsEnrolNoModel(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model * {\nlimit 1M tokens per hour\nlimit 1 images per day\nper_model\n}")
		for i := range 101 {
			want(t, q.send("alice", fmt.Sprint("x", i), 2), 400)
		}
		want(t, q.ask("alice", "gpt-4o", ""), 200)
		q.uses("alice", "tokens per hour (*) [gpt-4o]", 15)
		if n := len(q.rows("alice")); n != 1 {
			t.Errorf("got %d counters, want that of one model", n)
		}
	})
	g := start(t, "", "token_limit outer {\nconsumer_based\nmodel * {\nlimit 1M tokens per hour\nper_model\n}\n}\ntoken_limit inner {\nlimit 1 images per day\n}\ntest_upstream")
	q := &quotas{gateway: g, name: "outer"}
	for i := range 101 {
		want(t, q.send("alice", fmt.Sprint("x", i), 2), 400)
	}
	want(t, q.ask("alice", "gpt-4o", ""), 200)
	q.uses("alice", "tokens per hour (*) [gpt-4o]", 15)
}

// What is in Redis is bounded, too, and ends.
func TestInventedModelsLeaveNothingInRedis(t *testing.T) {
	srv := redistest.Start(t)
	q := quotasOf(t, redisGlobal(srv), "invented", "model * {\nlimit 1k requests per hour\nper_model\n}")
	for i := range 100 {
		want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
	}
	q.uses("alice", "requests per hour (*) [m99]", 1)
	client, ctx := srv.Client(), context.Background()
	size := func() (fields int64) {
		keys, err := client.Keys(ctx, "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if ttl := client.TTL(ctx, key).Val(); ttl <= 0 || ttl > 65*24*time.Hour {
				t.Errorf("%s lives for %s", key, ttl)
			}
			if strings.Contains(key, "alice") {
				fields += client.HLen(ctx, key).Val()
			}
		}
		return fields
	}
	before := size()
	for i := range 150 {
		want(t, q.ask("alice", fmt.Sprint("other", i), ""), 200)
	}
	q.uses("alice", "requests per hour (*) [other]", 150)
	if after := size(); before < 200 || after > before+2 {
		t.Errorf("%d fields became %d", before, after)
	}
}

// A fallback is limited as if it had been called itself, and what it did is counted for
// it and for the model that was asked for.
func TestFallbacksBelongToTheirBlocks(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model cheap {\nlimit 100 tokens per day\nlimit 9 requests per day\n}\nmodel dear {\nlimit 20 tokens per day\nlimit 9 requests per day\n}")
		answer = servedBy("cheap-2025-01-01", 10, 5)
		want(t, q.ask("alice", "cheap", `"models":["dear"],`), 200)
		q.uses("alice", "tokens per day (cheap)", 15)
		q.uses("alice", "requests per day (cheap)", 1)
		q.uses("alice", "tokens per day (dear)", 0)
		q.uses("alice", "requests per day (dear)", 0)

		answer = servedBy("dear", 10, 15)
		want(t, q.ask("alice", "cheap", `"models":["dear"],`), 200)
		q.uses("alice", "tokens per day (cheap)", 40)
		q.uses("alice", "tokens per day (dear)", 25)
		w := q.ask("alice", "cheap", `"models":["dear"],`)
		want(t, w, 429)
		has(t, w, "X-RateLimit-Limit", "20")
		want(t, q.ask("alice", "cheap", ""), 200)

		// an answer that names neither counts for both
		answer = servedBy("something", 5, 5)
		want(t, q.ask("bob", "cheap", `"models":["dear"],`), 200)
		q.uses("bob", "tokens per day (cheap)", 10)
		q.uses("bob", "tokens per day (dear)", 10)

		// what the path names is called, whatever the body says
		answer = servedBy("cheap", 5, 6)
		want(t, q.do("POST", "/openai/deployments/dear/chat/completions", `{"model":"cheap","max_tokens":5,"messages":[]}`, "X-App", "carol"), 200)
		q.uses("carol", "tokens per day (dear)", 11)
		q.uses("carol", "tokens per day (cheap)", 11)
	})
}

// A refusal names the model whose limit is used up, which a fallback may be.
func TestRefusalsNameTheModelWhoseLimitIsUsedUp(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model cheap {\nlimit 9 requests per hour\ntype cheap\n}\nmodel dear* {\nlimit 1 requests per day\nper_model\ntype dear\n}\nmodel plain {\nlimit 1 requests per week\n}\nlimit 4 requests per month")
		want(t, q.ask("alice", "dear-1", ""), 200)
		want(t, q.ask("alice", "plain", ""), 200)
		for _, tc := range []struct{ model, more, named, kind, level string }{
			{"dear-1", "", "dear-1", "dear", "daily"},
			{"Vendor/dear-1", "", "Vendor/dear-1", "dear", "daily"}, // as it was sent
			{"cheap", `"models":["dear-1"],`, "dear-1", "dear", "daily"},
			{"cheap", `"models":["dear-2","Dear-1"],`, "dear-1", "dear", "daily"},
			{"cheap", `"models":["dear-1","plain"],`, "plain", "text", "weekly"},
			{"", `"models":["cheap","plain"],`, "plain", "text", "weekly"},
			{"dear-1", `"models":["cheap"],`, "dear-1", "dear", "daily"},
		} {
			w := q.ask("alice", tc.model, tc.more)
			want(t, w, 429)
			has(t, w, "X-RateLimit-Model", tc.named, "X-RateLimit-Model-Type", tc.kind, "X-RateLimit-Ban-Level", tc.level)
		}
		want(t, q.ask("alice", "cheap", ""), 200)
		want(t, q.ask("alice", "cheap", ""), 200)
		w := q.ask("alice", "cheap", `"models":["dear-1"],`)
		want(t, w, 429)
		// a limit of all models is that of the model that is asked for
		has(t, w, "X-RateLimit-Model", "cheap", "X-RateLimit-Model-Type", "cheap", "X-RateLimit-Ban-Level", "monthly")
	})
}

// An alias answers under the name of its model, which a client can name as well.
func TestNamingAnAliasOfItsModelFreesNobody(t *testing.T) {
	for name, tc := range map[string]struct{ model, more, served string }{
		"fallback":             {"fast", `"fallbacks":["gpt-4o-mini"],`, "gpt-4o-mini-2024-07-18"},
		"unread-member":        {"fast", `"user_model":"gpt-4o-mini",`, "gpt-4o-mini-2024-07-18"},
		"tool":                 {"fast", `"tools":[{"type":"image_generation","model":"gpt-4o-mini"}],`, "gpt-4o-mini-2024-07-18"},
		"block-with-more-room": {"fast", `"fallbacks":["big"],`, "big"},
		"choices-alone":        {"", `"models":["fast","gpt-4o-mini"],`, "gpt-4o-mini-2024-07-18"},
	} {
		t.Run(name, func(t *testing.T) {
			q := quotasOf(t, "", "alias", "limit 1M requests per hour\nmodel fast {\nlimit 100 tokens per hour\n}\nmodel big {\nlimit 1M tokens per hour\n}")
			answer = servedBy(tc.served, 500, 500)
			ask := func() *httptest.ResponseRecorder {
				if tc.model != "" {
					return q.ask(name, tc.model, tc.more)
				}
				return q.do("POST", "/v1/chat/completions", "{"+tc.more+`"max_tokens":5,"messages":[]}`, "X-App", name)
			}
			want(t, ask(), 200)
			q.uses(name, "tokens per hour (fast)", 1000)
			want(t, ask(), 429)
		})
	}
}

func TestAnOutageOfTheStoreIsNeverSilent(t *testing.T) { // 20
	srv := redistest.Start(t)
	q := quotasOf(t, redisGlobal(srv), "away", "model * {\nlimit 1k tokens per day\nper_model\n}")
	want(t, q.ask("alice", "m", ""), 200)
	srv.Kill()
	for _, model := range []string{"m", "never-seen"} {
		want(t, q.ask("alice", model, ""), 503)
	}
}

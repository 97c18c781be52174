package tokenlimit_test

import (
	"bytes"
	"compress/gzip"
	"testing"
)

// TestTwoConsumersAtATime goes through what limiters get wrong, with two consumers in each,
// over every store.
func TestTwoConsumersAtATime(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		t.Run("limits of equal windows do not add up", func(t *testing.T) {
			q := start(t, "mode charge_after\nlimit 1k input_tokens per hour\nlimit 60 output_tokens per hour\nlimit 9 requests per hour")
			answer = servedBy("m", 300, 50)
			for _, app := range []string{"alice", "bob"} {
				for _, status := range []int{200, 200, 429} {
					w := q.ask(app, "m", "")
					want(t, w, status)
					if status == 429 {
						has(t, w, "X-RateLimit-Unit", "output_tokens", "X-RateLimit-Remaining", "0")
					}
				}
				q.uses(app, "input_tokens per hour", 600)
				q.uses(app, "output_tokens per hour", 100)
				q.uses(app, "requests per hour", 2)
			}
		})

		t.Run("a call that is refused uses nothing up", func(t *testing.T) {
			q := start(t, "limit 4 requests per day\nmodel x {\nlimit 100 images per day\n}\nmodel * {\nlimit 2 requests per hour\n}")
			for _, app := range []string{"alice", "bob"} {
				for i, status := range []int{200, 200, 429, 429, 429, 429} {
					if w := q.ask(app, "m", ""); w.Code != status {
						t.Errorf("call %d of %s: got %d", i, app, w.Code)
					}
				}
				q.uses(app, "requests per day", 2)
			}

			q = start(t, "limit 100 images per day")
			for _, app := range []string{"alice", "bob"} {
				for i, n := range []int{60, 60, 40, 1} {
					if got, ok := q.send(app, "m", n).Code == 200, i%2 == 0; got != ok {
						t.Errorf("%d pictures of %s: let pass %t", n, app, got)
					}
				}
				q.uses(app, "images per day", 100)
			}
		})

		t.Run("a limit of all and one of a model act together", func(t *testing.T) {
			q := start(t, "limit 3 requests per day\nmodel a {\nlimit 2 requests per day\n}")
			for _, app := range []string{"alice", "bob"} {
				for _, tc := range []struct {
					model  string
					status int
				}{{"a", 200}, {"a", 200}, {"a", 429}, {"b", 200}, {"b", 429}} {
					want(t, q.ask(app, tc.model, ""), tc.status)
				}
			}
		})

		t.Run("a model in a compressed body is found", func(t *testing.T) {
			q := start(t, "unlisted deny\nmodel a {\nlimit 1 requests per day\n}")
			send := func(app, model string) int {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, _ = z.Write([]byte(`{"model":"` + model + `","messages":[]}`))
				_ = z.Close()
				return q.do("POST", "/v1/chat/completions", b.String(), "X-App", app, "Content-Encoding", "gzip").Code
			}
			for _, app := range []string{"alice", "bob"} {
				if a, b, c := send(app, "a"), send(app, "a"), send(app, "b"); a != 200 || b != 429 || c != 403 {
					t.Errorf("%s: got %d, %d and %d", app, a, b, c)
				}
			}
		})

		t.Run("who has no name is limited, too, apart from who has one", func(t *testing.T) {
			q := start(t, "model * {\nlimit 1 requests per day\nper_model\n}")
			for _, app := range []string{"", "alice"} {
				want(t, q.ask(app, "m", ""), 200)
				want(t, q.ask(app, "m", ""), 429)
				want(t, q.ask(app, "n", ""), 200)
			}
			q.uses("default", "requests per day (*) [m]", 1)
		})

		t.Run("another amount acts on what has been used", func(t *testing.T) {
			q := start(t, "model a {\nlimit 2 requests per day\n}")
			for _, app := range []string{"alice", "bob"} {
				want(t, q.ask(app, "a", ""), 200)
				want(t, q.ask(app, "a", ""), 200)
			}
			q.reload(t, "model a {\nlimit 3 requests per day\n}")
			for _, app := range []string{"alice", "bob"} {
				want(t, q.ask(app, "a", ""), 200)
				want(t, q.ask(app, "a", ""), 429)
			}
		})
	})
}

package tokenlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// scripts is how many scripts a server has run.
func scripts(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(srv.Client().Info(context.Background(), "commandstats").Val()) {
		for _, name := range []string{"cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_fcall:"} {
			rest, ok := strings.CutPrefix(line, name+"calls=")
			if !ok {
				continue
			}
			calls, _, _ := strings.Cut(rest, ",")
			m, err := strconv.Atoi(calls)
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
	}
	return n
}

// A caller that is refused anyway loads no server, whatever names it makes up.
func TestInventedModelsOfARefusedCallerAskTheStoreSeldom(t *testing.T) {
	const calls = 1000
	for name, tc := range map[string]struct {
		lines string
		more  string // of the body
	}{
		"a-limit-of-all-models":    {"limit 1 requests per day\nmodel * {\nlimit 1k requests per hour\nper_model\n}", ""},
		"several-models-in-a-call": {"limit 1 requests per day\nmodel * {\nlimit 1k requests per hour\nper_model\n}", `"models":["%[1]s-b","%[1]s-c","dear"],`},
		"a-block-beside-it":        {"model dear {\nlimit 1 requests per day\n}\nmodel * {\nlimit 1k requests per hour\nper_model\n}", `"models":["dear"],`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			q := quotasOf(t, redisGlobal(srv), "hammer-"+name, tc.lines)
			want(t, q.ask("alice", "dear", ""), 200)
			before, began := scripts(t, srv), time.Now()
			for i := range calls {
				model := fmt.Sprint("made-up-", i)
				more := tc.more
				if strings.Contains(more, "%") {
					more = fmt.Sprintf(more, model)
				}
				w := q.ask("alice", model, more)
				want(t, w, 429)
				has(t, w, "X-RateLimit-Ban-Level", "daily", "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0")
			}
			asked, took := scripts(t, srv)-before, time.Since(began)
			t.Logf("%d scripts for %d calls in %s", asked, calls, took)
			// one admission, one refusal and what is given back, each second, and the
			// replica's own
			if most := 8 + 6*int(took/time.Second); asked > most {
				t.Errorf("%d calls ran %d scripts in %s, want at most %d", calls, asked, took, most)
			}
			if n := len(q.rows("alice")); n > 5 {
				t.Errorf("%d counters are left", n)
			}
		})
	}
}

// Nor does one that goes through models that it has used, and has counters for.
func TestKnownModelsOfARefusedCallerAskTheStoreSeldom(t *testing.T) {
	const calls, models = 2000, 100
	blocks := ""
	for i := range models {
		blocks += fmt.Sprintf("model m%d {\nlimit 1k requests per minute\nlimit 1k requests per hour\nlimit 1M tokens per hour\n}\n", i)
	}
	for name, tc := range map[string]struct {
		lines string
		most  int // of scripts, in a second
	}{
		"a-limit-of-all-models":     {"limit 100 requests per day\nmodel * {\nlimit 1k requests per minute\nlimit 1k requests per hour\nlimit 1M tokens per hour\nper_model\n}", 16},
		"a-limit-of-all-and-blocks": {"limit 100 requests per day\n" + blocks, 16},
		"limits-of-their-own":       {"model * {\nlimit 1 requests per day\nlimit 1M tokens per day\nper_model\n}", models + 16},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			q := quotasOf(t, redisGlobal(srv), "through-"+name, tc.lines)
			for i := range models {
				want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
			}
			before, began := scripts(t, srv), time.Now()
			for i := range calls {
				w := q.ask("alice", fmt.Sprint("m", i%models), "")
				want(t, w, 429)
				has(t, w, "X-RateLimit-Ban-Level", "daily", "X-RateLimit-Remaining", "0")
			}
			asked, took := scripts(t, srv)-before, time.Since(began)
			t.Logf("%d scripts for %d calls in %s", asked, calls, took)
			if most := tc.most * (1 + int(took/time.Second+1)); asked > most {
				t.Errorf("%d calls ran %d scripts in %s, want at most %d", calls, asked, took, most)
			}
		})
	}
}

// noModel is what providers answer to a name they do not know.
var noModel = reply(http.StatusNotFound, `{"error":{"message":"no such model","code":"model_not_found"}}`)

// Names that no provider knows take no place from models.
func TestModelsThatNothingCameOfKeepNoPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model * {\nlimit 1k tokens per hour\nper_model\n}")
		answer = noModel
		for i := range 150 {
			more := ""
			if i%3 == 0 {
				more = fmt.Sprintf(`"models":["made-up-%d-b","made-up-%d-c"],`, i, i)
			}
			want(t, q.ask("alice", fmt.Sprint("made-up-", i), more), 404)
		}
		answer = servedBy("real", 10, 5)
		for i := range 100 {
			want(t, q.ask("alice", fmt.Sprint("real-", i), ""), 200)
		}
		want(t, q.ask("alice", "late", ""), 200)
		q.uses("alice", "tokens per hour (*) [real-0]", 15)
		q.uses("alice", "tokens per hour (*) [real-99]", 15)
		q.uses("alice", "tokens per hour (*) [other]", 15)
		if n := len(q.rows("alice")); n != 101 {
			t.Errorf("got %d counters, want 101", n)
		}
	})
}

// alsoNaming are members of a body that names so many models that nobody knows, and more,
// beside the one that it asks for.
func alsoNaming(prefix string, n int, more ...string) string {
	for i := range n {
		more = append(more, fmt.Sprint(prefix, "-", i))
	}
	return `"models":["` + strings.Join(more, `","`) + `"],`
}

// The names that a call brings along take no place where its answer is of another model.
func TestModelsThatDidNotAnswerKeepNoPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		answer caddyhttp.HandlerFunc
		own    map[string]float64 // used by two calls
		free   int                // places that are left
	}{
		"the-one-asked-for-answers": {servedBy("real", 10, 5), map[string]float64{"real": 30}, 99},
		"another-one-answers":       {servedBy("Vendor/dear", 10, 5), map[string]float64{"real": 30, "dear": 30}, 98},
		"nothing-is-used":           {reply(200, `{"model":"real","usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`), nil, 99},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, start starter) {
				q := start(t, "model * {\nlimit 1k tokens per hour\nper_model\n}")
				answer = tc.answer
				for _, prefix := range []string{"one", "two"} {
					want(t, q.ask("alice", "real", alsoNaming(prefix, 60, "dear")), 200)
				}
				for model, used := range tc.own {
					q.uses("alice", "tokens per hour (*) ["+model+"]", used)
				}
				answer = servedBy("x", 10, 5)
				for i := range tc.free {
					want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
				}
				q.uses("alice", fmt.Sprintf("tokens per hour (*) [m%d]", tc.free-1), 15)
				want(t, q.ask("alice", "late", ""), 200)
				q.uses("alice", "tokens per hour (*) [other]", 15)
			})
		})
	}
}

// An answer that names none of a call's models, or none at all, may be that of any: all
// are charged for it, and each in a counter that is found again.
func TestModelsThatMayHaveAnsweredKeepTheirPlace(t *testing.T) {
	for name, body := range map[string]string{
		"an-alias":    `{"model":"something","usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`,
		"a-name-less": `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`,
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, start starter) {
				q := start(t, "model * {\nlimit 1k tokens per hour\nper_model\n}")
				answer = reply(200, body)
				want(t, q.ask("alice", "real", alsoNaming("one", 60)), 200)
				want(t, q.ask("alice", "real", alsoNaming("two", 60)), 200)
				q.uses("alice", "tokens per hour (*) [real]", 30)
				q.uses("alice", "tokens per hour (*) [one-59]", 15)
				q.uses("alice", "tokens per hour (*) [two-38]", 15)
				q.uses("alice", "tokens per hour (*) [other]", 15) // the last 21, once
				if n := len(q.rows("alice")); n != 101 {
					t.Errorf("got %d counters, want 101", n)
				}
			})
		})
	}
}

// What was charged has to be found again, whatever the answer was.
func TestModelsThatWereChargedKeepTheirPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		lines, rule string
		answer      caddyhttp.HandlerFunc
		status      int
		used, more  float64 // by such a call, and by one that is answered
	}{
		"an-answer-without-use":  {"limit 1k tokens per hour", "tokens per hour (*)", reply(200, `{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`), 200, 0, 15},
		"a-failure-that-used":    {"limit 1k tokens per hour", "tokens per hour (*)", reply(500, `{"error":{"message":"x"},"usage":{"prompt_tokens":7,"completion_tokens":0,"total_tokens":7}}`), 500, 7, 15},
		"a-request-is-something": {"limit 9 requests per hour", "requests per hour (*)", noModel, 404, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, start starter) {
				q := start(t, "model * {\n"+tc.lines+"\nper_model\n}")
				answer = tc.answer
				for i := range 100 {
					want(t, q.ask("alice", fmt.Sprint("m", i), ""), tc.status)
				}
				answer = servedBy("late", 10, 5)
				want(t, q.ask("alice", "late", ""), 200)
				want(t, q.ask("alice", "m99", ""), 200)
				q.uses("alice", tc.rule+" [m0]", tc.used)
				q.uses("alice", tc.rule+" [m99]", tc.used+tc.more)
				q.uses("alice", tc.rule+" [other]", tc.more)
			})
		})
	}
}

// Two calls of a model that is new are under way at once, and one of them fails: what the
// other used is counted for the model, once, whichever ends first.
func TestACallThatFailsTakesNoPlaceFromAnother(t *testing.T) {
	for _, failsFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("fails-first-", failsFirst), func(t *testing.T) {
			eachStore(t, func(t *testing.T, start starter) {
				q := start(t, "model * {\nlimit 1k tokens per hour\nper_model\n}")
				for i := range 99 {
					want(t, q.ask("alice", fmt.Sprint("m", i), ""), 200)
				}
				arrived := make(chan struct{}, 2)
				ends := map[string]chan struct{}{"good": make(chan struct{}), "bad": make(chan struct{})}
				answer = func(w http.ResponseWriter, r *http.Request) error {
					kind := r.Header.Get("X-Kind")
					arrived <- struct{}{}
					<-ends[kind]
					if kind == "bad" {
						return noModel(w, r)
					}
					return servedBy("new", 10, 5)(w, r)
				}
				done := map[string]chan int{"good": make(chan int, 1), "bad": make(chan int, 1)}
				order := []string{"good", "bad"}
				if failsFirst {
					order = []string{"bad", "good"}
				}
				for _, kind := range order {
					go func() { done[kind] <- q.ask("alice", "new", "", "X-Kind", kind).Code }()
					<-arrived
				}
				for _, kind := range order {
					close(ends[kind])
					if got, want := <-done[kind], map[string]int{"good": 200, "bad": 404}[kind]; got != want {
						t.Errorf("%s: got %d", kind, got)
					}
				}
				answer = servedBy("x", 10, 5)
				want(t, q.ask("alice", "late", ""), 200)
				want(t, q.ask("alice", "new", ""), 200)
				q.uses("alice", "tokens per hour (*) [new]", 30)
				q.uses("alice", "tokens per hour (*) [other]", 15)
			})
		})
	}
}

// However calls of few models overlap, what was used is counted once, and where it belongs.
func TestPlacesUnderConcurrency(t *testing.T) {
	eachStore(t, func(t *testing.T, start starter) {
		q := start(t, "model * {\nlimit 1M tokens per hour\nper_model\n}")
		answer = func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("X-Kind") == "bad" {
				return noModel(w, r)
			}
			return servedBy("x", 10, 5)(w, r)
		}
		const workers, rounds, models = 8, 40, 5
		var wg sync.WaitGroup
		for n := range workers {
			wg.Go(func() {
				for i := range rounds {
					kind := "bad"
					if (i+n)%2 == 0 {
						kind = "good"
					}
					q.ask("alice", fmt.Sprint("m", (i/2+n)%models), "", "X-Kind", kind)
					q.ask("alice", fmt.Sprint("made-up", n, "-", i), "", "X-Kind", "bad")
				}
			})
		}
		wg.Wait()
		total := 0.0
		for i := range models {
			name := fmt.Sprint("tokens per hour (*) [m", i, "]")
			for deadline := time.Now().Add(10 * time.Second); q.counter("alice", name).Reserved != 0 && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			total += q.counter("alice", name).Used
		}
		if want := float64(workers * rounds / 2 * 15); total != want {
			t.Errorf("%v tokens are counted, want %v", total, want)
		}
		if n := len(q.rows("alice")); n != models {
			t.Errorf("got %d counters, want %d", n, models)
		}
		for i := range 100 - models {
			want(t, q.ask("alice", fmt.Sprint("more-", i), "", "X-Kind", "good"), 200)
		}
		want(t, q.ask("alice", "late", "", "X-Kind", "good"), 200)
		q.uses("alice", "tokens per hour (*) [other]", 15)
	})
}

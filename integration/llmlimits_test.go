//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// The paths that the resources of these tests are for.
const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
)

// halfDollar prices any call at $0.50, whatever it uses.
const halfDollar = `llm_cost {
			price * {
				input 0
				output 0
				request 0.50
			}
		}`

// eachStore runs a test with counts in this process and in Redis.
func eachStore(t *testing.T, test func(t *testing.T, store string)) {
	t.Run("memory", func(t *testing.T) { test(t, memoryStore) })
	t.Run("redis", func(t *testing.T) {
		test(t, "store redis {\naddress "+redistest.Start(t).Addr()+"\ntimeout 5s\npersist off\n}")
	})
}

// startChain runs a gateway with the lines of an llm_limits, at $0.50 a call.
func startChain(t *testing.T, up *upstream, store, lines string) *gateway {
	t.Helper()
	return start(t, up, "{\n\tllm {\n\t\t"+store+"\n\t}\n}\n{site} {"+auth+halfDollar+"\nllm_limits {name} {\n"+lines+"\n}\nreverse_proxy {upstream}\n}")
}

// ask sends a small question to a path.
func (g *gateway) ask(key, path string) int {
	g.t.Helper()
	return g.call("POST", path, key, `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`).Status
}

// askAll sends a question after the other, and wants an answer of this status to each.
func (g *gateway) askAll(key, path string, want ...int) {
	g.t.Helper()
	for i, status := range want {
		if got := g.ask(key, path); got != status {
			g.t.Errorf("call %d of %s to %s: %d, want %d", i+1, key, path, got, status)
		}
	}
}

// chargedBy wants an amount to be charged under a rule of an instance, whose name is given
// without the block's, once no call holds anything of it. Of a counter that all share the
// consumer is empty.
func (g *gateway) chargedBy(instance, consumer, rule, want string) {
	g.t.Helper()
	q := url.Values{"instance": {g.testName() + "." + instance}}
	var got, held string
	atRest(func() bool {
		got, held = "0", "0"
		var rows []struct {
			Rule, Consumer string
			Used, Reserved json.RawMessage
		}
		g.adminGet("/llm/usage?"+q.Encode(), &rows)
		for _, r := range rows {
			if r.Consumer == consumer && r.Rule == rule {
				got, held = strings.Trim(string(r.Used), `"`), strings.Trim(string(r.Reserved), `"`)
			}
		}
		return held == "0" && got == want // what is given back holds nothing meanwhile
	})
	if got != want {
		g.t.Errorf("%s has charged %q with %s under %s, want %s", instance, consumer, got, rule, want)
	}
}

// change sends a value to the admin endpoint; again where that has just been replaced, since
// to set a value twice is to set it.
func (g *gateway) change(path, value string) {
	g.t.Helper()
	c := adminClient(g.admin)
	g.loaded.Store(time.Now().UnixNano())
	var resp *http.Response
	eventually(g.t, "answered", func() bool {
		req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPatch, "http://localhost"+path, strings.NewReader(value))
		if err != nil {
			g.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err = c.Do(req)
		return err == nil
	})
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		g.t.Fatalf("PATCH %s: %d %s", path, resp.StatusCode, text)
	}
	g.client.CloseIdleConnections()
}

func TestChainOfABackendAndAConsumerBudget(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		up := newUpstream(t, nil)
		g := startChain(t, up, store, "backend {\nlimit $100 per day\n}\nconsumer {\nlimit $1 per day\n}")
		g.askAll(keyA, chatPath, 200, 200, 429, 429)
		g.askAll(keyB, chatPath, 200, 200, 429)
		g.chargedBy("consumer.cost", "app-a", "usd per day", "1")
		g.chargedBy("consumer.cost", "app-b", "usd per day", "1")
		g.chargedBy("backend.cost", "", "usd per day", "2")
		if n := up.calls(); n != 4 {
			t.Errorf("the upstream was called %d times, want 4", n)
		}
	})
}

func TestChainOfABackendBudgetForAPathAndAConsumerBudget(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, nil), store, "consumer {\nlimit $1 per day\n}\nresource /v1/chat/* {\nbackend {\nlimit $100 per day\n}\n}")
		for _, key := range []string{keyA, keyB} {
			for i, want := range []int{200, 200, 429} {
				if got := g.askInPieces(key); got != want {
					t.Errorf("call %d of %s: %d, want %d", i+1, key, got, want)
				}
			}
		}
		g.chargedBy("consumer.cost", "app-a", "usd per day", "1")
		g.chargedBy("v1.chat.*.backend.cost", "", "usd per day", "2")
	})
}

// askInPieces sends a question of unknown length whose body arrives little by little.
func (g *gateway) askInPieces(key string) int {
	g.t.Helper()
	body, w := io.Pipe()
	go func() {
		for _, piece := range []string{`{"model":"gpt-4o-`, `mini","messages":[{"role":"user",`, `"content":"hi"}]}`} {
			io.WriteString(w, piece)
		}
		w.Close()
	}()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+g.addr+chatPath, body)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestChainWithABudgetOfAPathBesideTheOneOfTheRest(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, nil), store, "backend {\nlimit $1 per day\n}\nresource "+chatPath+" {\nbackend {\nlimit $1.50 per day\n}\n}")
		g.askAll(keyA, chatPath, 200, 200)
		g.askAll(keyB, chatPath, 200, 429) // the path's is used up
		g.chargedBy("v1.chat.completions.backend.cost", "", "usd per day", "1.50")
		g.chargedBy("backend.cost", "", "usd per day", "0") // nothing of it is charged here
		g.askAll(keyB, responsesPath, 200)
		g.askAll(keyA, responsesPath, 200, 429)
		g.chargedBy("v1.chat.completions.backend.cost", "", "usd per day", "1.50")
		g.chargedBy("backend.cost", "", "usd per day", "1")
	})
}

func TestChainsOneAfterTheOtherBothCount(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := start(t, newUpstream(t, nil), "{\n\tllm {\n\t\t"+store+"\n\t}\n}\n{site} {"+auth+halfDollar+`
			llm_limits {name}.api {
				backend {
					limit $1 per day
				}
			}
			llm_limits {name}.paths {
				resource `+chatPath+` {
					backend {
						limit $10 per day
					}
				}
			}
			reverse_proxy {upstream}
		}`)
		g.askAll(keyA, chatPath, 200)
		g.askAll(keyB, chatPath, 200, 429)
		g.chargedBy("api.backend.cost", "", "usd per day", "1")
		g.chargedBy("paths.v1.chat.completions.backend.cost", "", "usd per day", "1")
	})
}

func TestChainOfABackendHasOneBudgetForAllPaths(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, nil), store, "backend {\nlimit $1 per day\n}\nresource "+chatPath+" {\nconsumer {\nlimit 10 requests per day\n}\n}")
		g.askAll(keyA, chatPath, 200)
		g.askAll(keyB, responsesPath, 200, 429)
		g.askAll(keyB, chatPath, 429)
		g.chargedBy("backend.cost", "", "usd per day", "1")
		// what the backend refuses takes nothing of the consumer's
		g.chargedBy("v1.chat.completions.consumer.tokens", "app-a", "requests per day", "1")
		g.chargedBy("v1.chat.completions.consumer.tokens", "app-b", "requests per day", "0")
	})
}

func TestChainCountsEveryUnitApart(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		const rules = "limit 1000 input_tokens per hour\nlimit 1000 output_tokens per hour\nlimit 1000 tokens per hour\nlimit 1000 requests per hour\nlimit $1000 per hour\n"
		g := startChain(t, newUpstream(t, nil), store, "consumer {\n"+rules+"}\nbackend {\n"+rules+"}")
		g.askAll(keyA, chatPath, 200, 200)
		g.askAll(keyB, chatPath, 200)
		for _, tc := range []struct {
			side, consumer string
			calls          int
		}{{"consumer", "app-a", 2}, {"consumer", "app-b", 1}, {"backend", "", 3}} {
			g.chargedBy(tc.side+".tokens", tc.consumer, "input_tokens per hour", fmt.Sprint(20*tc.calls))
			g.chargedBy(tc.side+".tokens", tc.consumer, "output_tokens per hour", fmt.Sprint(40*tc.calls))
			g.chargedBy(tc.side+".tokens", tc.consumer, "tokens per hour", fmt.Sprint(60*tc.calls))
			g.chargedBy(tc.side+".tokens", tc.consumer, "requests per hour", fmt.Sprint(tc.calls))
			g.chargedBy(tc.side+".cost", tc.consumer, "usd per hour", []string{"0", "0.50", "1", "1.50"}[tc.calls])
		}
	})
}

// asMuchAsAsked answers with as many tokens as the call allows, and ten read.
func asMuchAsAsked(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Max int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"chat.completion","model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}`, q.Max, q.Max+10)
}

func TestChainChargesNothingForWhatItRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, http.HandlerFunc(asMuchAsAsked)), store,
			"backend {\nmode strict\nlimit 100k tokens per day\n}\nconsumer {\nmode strict\nlimit 1000 tokens per day\nlimit 10 requests per day\n}")
		for _, key := range []string{keyA, keyB} {
			for _, tc := range []struct{ most, want int }{{600, 200}, {600, 429}, {600, 429}, {200, 200}} {
				body := fmt.Sprintf(`{"model":"gpt-4o-mini","max_tokens":%d,"messages":[{"role":"user","content":"hi"}]}`, tc.most)
				if a := g.call("POST", chatPath, key, body); a.Status != tc.want {
					t.Errorf("a call of %s for %d tokens: %d, want %d: %s", key, tc.most, a.Status, tc.want, a.Body)
				}
			}
		}
		for _, app := range []string{"app-a", "app-b"} {
			g.chargedBy("consumer.tokens", app, "tokens per day", "820")
			g.chargedBy("consumer.tokens", app, "requests per day", "2")
		}
		g.chargedBy("backend.tokens", "", "tokens per day", "1640")
	})
}

func TestChainRefusedByTheShortWindowLeavesTheLongOne(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, nil), store, "consumer {\nlimit 4 requests per 24h\nlimit 2 requests per 1h\n}\nbackend {\nlimit 3 requests per 24h\nlimit $10 per 24h\n}")
		g.askAll(keyA, chatPath, 200, 200, 429, 429, 429, 429)
		g.askAll(keyB, chatPath, 200, 429, 429) // the backend's are used up
		g.chargedBy("consumer.tokens", "app-a", "requests per 24h", "2")
		g.chargedBy("consumer.tokens", "app-a", "requests per 1h", "2")
		g.chargedBy("consumer.tokens", "app-b", "requests per 24h", "1")
		g.chargedBy("backend.tokens", "", "requests per 24h", "3")
		g.chargedBy("backend.cost", "", "usd per 24h", "1.50")
	})
}

func TestChainKeepsTheBackendsCountBesideConsumersOfSeveralPaths(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		const lines = "consumer {\nlimit 1k tokens per hour\n}\nbackend {\nlimit 240 tokens per hour\nmode charge_after\n}\n" +
			"resource " + chatPath + " {\nconsumer {\nlimit 1k tokens per hour\n}\n}\nresource " + responsesPath + " {\nconsumer {\nlimit 1k tokens per hour\n}\n}"
		g := startChain(t, newUpstream(t, nil), store, lines)
		g.askAll(keyA, chatPath, 200)
		g.askAll(keyB, responsesPath, 200)
		g.askAll(keyB, chatPath, 200)
		g.askAll(keyA, "/v1/other/chat/completions", 200)
		for _, path := range []string{chatPath, responsesPath, "/v1/other/chat/completions"} {
			g.askAll(keyA, path, 429)
			g.askAll(keyB, path, 429)
		}
		g.chargedBy("backend.tokens", "", "tokens per hour", "240")
		g.chargedBy("consumer.tokens", "app-a", "tokens per hour", "60")
		g.chargedBy("v1.chat.completions.consumer.tokens", "app-a", "tokens per hour", "60")
		g.chargedBy("v1.chat.completions.consumer.tokens", "app-b", "tokens per hour", "60")
		g.chargedBy("v1.responses.consumer.tokens", "app-b", "tokens per hour", "60")
	})
}

func TestMostSpecificPathOfAChainWinsOnEachSide(t *testing.T) {
	g := startChain(t, newUpstream(t, nil), memoryStore, `
		consumer {
			limit 10 requests per hour
		}
		resource /v1/* {
			consumer {
				limit 9 requests per hour
			}
			backend {
				limit 8 requests per hour
			}
		}
		resource /v1/chat/* {
			consumer {
				limit 7 requests per hour
			}
		}
		resource /v1/chat/completions {
			backend {
				limit 6 requests per hour
			}
		}`)
	for _, path := range []string{chatPath, "/V1//Chat/completions", "/v1/chat/other", "/v1/other", "/other", "/v1"} {
		g.askAll(keyA, path, 200)
	}
	for instance, n := range map[string]string{
		"consumer": "2", "v1.*.consumer": "1", "v1.chat.*.consumer": "3", "v1.*.backend": "2", "v1.chat.completions.backend": "2",
	} {
		app := "app-a"
		if strings.HasSuffix(instance, "backend") {
			app = ""
		}
		g.chargedBy(instance+".tokens", app, "requests per hour", n)
	}
}

func TestPricesOfTheOperatorHoldInAChain(t *testing.T) {
	const chain = "llm_limits {name} {\nconsumer {\nlimit $10 per day\n}\n}"
	for name, site := range map[string]string{
		"sorted":               auth + chain + "\n" + halfDollar,
		"prices before":        "route {" + auth + halfDollar + "\n" + chain + "\n}",
		"prices behind":        "route {" + auth + chain + "\n" + halfDollar + "\n}",
		"a budget before both": "route {" + auth + halfDollar + "\ncost_limit {name}-all {\nlimit $10 per day\n}\n" + chain + "\n}",
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, newUpstream(t, nil), "{site} {\n"+site+"\nreverse_proxy {upstream}\n}")
			a := g.call("POST", chatPath, keyA, `{"model":"nobody-knows-this-one","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
			if a.Status != http.StatusOK {
				t.Errorf("got %d: %s", a.Status, a.Body)
			}
			g.chargedBy("consumer.cost", "app-a", "usd per day", "0.50")
		})
	}
}

func TestOneLimitOfAChainIsChangedWhereItRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		g := startChain(t, newUpstream(t, nil), store,
			"consumer {\nlimit 2 requests per day\nlimit $10 per day\n}\nbackend {\nlimit 100 requests per day\n}\nresource /v1/responses* {\nconsumer {\nlimit $0.50 per day\n}\n}")
		g.askAll(keyA, chatPath, 200, 200, 429)
		g.askAll(keyA, responsesPath, 200, 429)
		g.change("/id/"+g.testName()+".consumer.tokens/limits/0/amount", `"3"`)
		g.change("/id/"+g.testName()+".v1.responses*.consumer.cost/limits/0/amount", `"$1"`)
		g.chargedBy("consumer.tokens", "app-a", "requests per day", "2")
		g.chargedBy("consumer.cost", "app-a", "usd per day", "1")
		g.askAll(keyA, chatPath, 200, 429)
		g.askAll(keyA, responsesPath, 200, 429)
		g.askAll(keyB, chatPath, 200)
		g.chargedBy("consumer.tokens", "app-a", "requests per day", "3")
		g.chargedBy("v1.responses*.consumer.cost", "app-a", "usd per day", "1")
		g.chargedBy("backend.tokens", "", "requests per day", "6")
	})
}

func TestAChainOfConsumersBeforeTheirKeysIsRefused(t *testing.T) {
	g := &gateway{t: t, run: runs.Add(1), admin: t.TempDir() + "/admin.sock", logs: &logFile{path: t.TempDir() + "/caddy.log"}, addr: loopback.Address(t)}
	err := g.tryLoad(newUpstream(t, nil), "{site} {\nroute {\nllm_limits {name} {\nresource /v1/* {\nconsumer {\nlimit 1 requests per day\n}\n}\nresource /v2/* {\nconsumer {\nlimit 1 requests per day\n}\n}\n}"+auth+"reverse_proxy {upstream}\n}\n}")
	if err == nil || !strings.Contains(err.Error(), "put api_key_auth first") {
		t.Errorf("got %v", err)
	}
}

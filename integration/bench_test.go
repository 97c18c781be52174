package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// The benchmarks compare the full chain with plain reverse_proxy: one Caddy serves
// both, in one run, to one client. Times of this machine say little; the ratios do.
// They come from the sub-benchmarks named paired, which call the two in turn, so that
// what disturbs the one disturbs the other.

// benchSites are the ways to the provider. No limit is ever reached, and nothing fails.
const benchSites = `{
	admin off
	auto_https off
	persist_config off
	log {
		output discard
	}
}

http://{plain} {
	reverse_proxy {upstream}
}

http://{metered} {
	api_key_auth {
		key a {hash} {
			application app-a
		}
	}
	token_limit bench-consumer {
		consumer_based
		limit 1000M requests per hour
		limit 1000000M tokens per day
	}
	token_limit bench-backend {
		limit 1000000M tokens per month
	}
	reverse_proxy {upstream}
}

http://{retrying} {
	api_key_auth {
		key a {hash} {
			application app-a
		}
	}
	token_limit bench-consumer-of-retries {
		consumer_based
		limit 1000M requests per hour
		limit 1000000M tokens per day
	}
	token_limit bench-backend-of-retries {
		limit 1000000M tokens per month
	}
	llm_retry {
		fallback spare
		breaker 20 per 1m
	}
	reverse_proxy {upstream}
}`

// rig is a Caddy with the sites, a provider behind it and a client before it.
type rig struct {
	b                        *testing.B
	plain, metered, retrying string // address of each site
	client                   *http.Client
}

func newRig(b *testing.B, provider http.HandlerFunc) *rig {
	b.Helper()
	srv := httptest.NewServer(provider)
	b.Cleanup(srv.Close)
	rg := &rig{b: b, client: &http.Client{Transport: &http.Transport{}}}
	var err error
	for range 10 { // as in start
		rg.plain, rg.metered, rg.retrying = freeBenchAddr(b), freeBenchAddr(b), freeBenchAddr(b)
		if err = rg.load(srv.Listener.Addr().String()); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		rg.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			b.Error(err)
		}
	})
	return rg
}

func (rg *rig) load(upstream string) error {
	text := strings.NewReplacer("{plain}", rg.plain, "{metered}", rg.metered, "{retrying}", rg.retrying, "{upstream}", upstream, "{hash}", keyHash(keyA)).Replace(benchSites)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

func freeBenchAddr(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// post sends a chat completion to one of the sites.
func (rg *rig) post(addr string, body []byte) *http.Response {
	req, err := http.NewRequestWithContext(rg.b.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		rg.b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+keyA)
	resp, err := rg.client.Do(req)
	if err != nil {
		rg.b.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		rg.b.Fatalf("%s: %s", resp.Status, text)
	}
	return resp
}

// measured is a call to a site and what of its time counts.
type measured func(rg *rig, addr string) time.Duration

// compare runs a call against each of the sites by itself, then against both in turn.
// perCall is how many of the things measured a call has: its events, or 1.
func (rg *rig) compare(suffix string, perCall int, call measured) {
	alone := func(addr string) func(b *testing.B) {
		return func(b *testing.B) {
			rg := rg.in(b)
			call(rg, addr) // connects
			b.ReportAllocs()
			var total time.Duration
			n := 0
			for b.Loop() {
				total += call(rg, addr)
				n++
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(n*perCall), "ns/op")
		}
	}
	rg.b.Run("plain"+suffix, alone(rg.plain))
	rg.b.Run("metered"+suffix, alone(rg.metered))
	rg.b.Run("paired"+suffix, func(b *testing.B) {
		rg := rg.in(b)
		call(rg, rg.plain)
		call(rg, rg.metered)
		var plain, metered, ratios []float64
		for i := 0; b.Loop(); i++ {
			var p, m time.Duration
			if i%2 == 0 { // neither always comes second
				p, m = call(rg, rg.plain), call(rg, rg.metered)
			} else {
				m, p = call(rg, rg.metered), call(rg, rg.plain)
			}
			plain = append(plain, float64(p.Nanoseconds())/float64(perCall))
			metered = append(metered, float64(m.Nanoseconds())/float64(perCall))
			ratios = append(ratios, float64(m)/float64(p))
		}
		b.ReportMetric(0, "ns/op") // of a pair: nobody wants to know
		b.ReportMetric(median(plain), "plain-ns")
		b.ReportMetric(median(metered), "metered-ns")
		b.ReportMetric(median(ratios), "ratio")
	})
}

// in is the rig for a sub-benchmark.
func (rg *rig) in(b *testing.B) *rig {
	sub := *rg
	sub.b = b
	return &sub
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkCall measures a call that is not streamed, from the first byte sent to the
// last one read. Request and answer have the size each.
func BenchmarkCall(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KB", 1 << 10}, {"20KB", 20 << 10}} {
		text := strings.Repeat("word \\\"x\\\" ", size.bytes/11)
		answer := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1790000001,"model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"message":{"role":"assistant","content":"` + text + `"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}`)
		request := []byte(`{"model":"gpt-4o-mini","max_completion_tokens":40,"messages":[{"role":"user","content":"` + text + `"}]}`)

		rg := newRig(b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
		})
		rg.compare("-"+size.name, 1, func(rg *rig, addr string) time.Duration {
			start := time.Now()
			resp := rg.post(addr, request)
			n, err := io.Copy(io.Discard, resp.Body)
			took := time.Since(start)
			resp.Body.Close()
			if err != nil || n != int64(len(answer)) {
				rg.b.Fatalf("read %d of %d bytes: %v", n, len(answer), err)
			}
			return took
		})
	}
}

const benchStream = `{"model":"gpt-4o-mini","stream":true,"max_completion_tokens":400,"messages":[{"role":"user","content":"hi"}]}`

// lockstep is a provider that sends an event of a stream only when the one before it
// has been read. Thus events cannot pile up and travel together, as they would if they
// were sent at once, and nobody has to sleep between them.
type lockstep struct {
	events int
	read   chan struct{} // one for each event but the last, from the client
}

func (l *lockstep) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	asked := bytes.Contains(body, []byte(`"include_usage":true`))
	null := ""
	if asked {
		null = `,"usage":null`
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	rc := http.NewResponseController(w)
	for i := range l.events {
		fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1790000001,"model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"delta":{"content":"word %d "},"logprobs":null,"finish_reason":null}]%s}`+"\n\n", i, null)
		_ = rc.Flush()
		select {
		case <-l.read:
		case <-r.Context().Done():
			return
		}
	}
	if asked {
		_, _ = io.WriteString(w, usageEvent)
	}
	_, _ = io.WriteString(w, doneEvent)
}

// call reads a whole stream and returns how long it took until the first event had
// been read, and until the last.
func (l *lockstep) call(rg *rig, addr string) (first, all time.Duration) {
	start := time.Now()
	resp := rg.post(addr, []byte(benchStream))
	defer resp.Body.Close()
	events := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if !bytes.HasPrefix(lines.Bytes(), []byte("data: {")) {
			continue
		}
		events++
		all = time.Since(start)
		if events == 1 {
			first = all
		}
		l.read <- struct{}{}
	}
	if events != l.events {
		rg.b.Fatalf("read %d events of %d", events, l.events)
	}
	return first, all
}

// BenchmarkFirstEvent measures from the first byte of a request to the first event of
// its stream.
func BenchmarkFirstEvent(b *testing.B) {
	l := &lockstep{events: 1, read: make(chan struct{}, 1)}
	newRig(b, l.ServeHTTP).compare("", 1, func(rg *rig, addr string) time.Duration {
		first, _ := l.call(rg, addr)
		return first
	})
}

// BenchmarkStream200 measures a stream of 200 events that come one at a time. Times
// are those of an event.
func BenchmarkStream200(b *testing.B) {
	l := &lockstep{events: 200, read: make(chan struct{}, 1)}
	newRig(b, l.ServeHTTP).compare("", l.events, func(rg *rig, addr string) time.Duration {
		_, all := l.call(rg, addr)
		return all
	})
}

package main

import (
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/bench/load"
	"github.com/llmlimits/caddy-llm-limits/bench/provider"
	"github.com/llmlimits/caddy-llm-limits/bench/server"
)

// Scenario is one line of the table: two sites under one load.
type Scenario struct {
	Name string
	Site Site
	// Against is what the site is compared with. The default is plain reverse_proxy.
	Against Site
	// Redis has counts kept in a Redis.
	Redis bool
	// AccessLog has both sites write one.
	AccessLog bool
	// Size is about how many bytes request and answer have each.
	Size int
	// Events is how many events a stream has; 0 is no stream. Pace is the time between two.
	Events int
	Pace   time.Duration
	// Asked says that the client asks for usage, so that the gateway need not.
	Asked bool
	// Workers, Rate, Slice and Pairs are as in [load.Load].
	Workers int
	Rate    float64
	Slice   time.Duration
	Pairs   int
	// Consumers is how many there are, 1 by default.
	Consumers int
	// Target is what the figures should not exceed.
	Target Target
}

// Target bounds the figures of a scenario; 0 is no bound.
type Target struct {
	// CPU, P50 and P99 are ratios; Slower is that of calls in a second, the other's by ours.
	CPU, P50, P99, Slower float64
	// Allocs is for a call, Event in microseconds, Memory in KiB for a stream.
	Allocs, Event, Memory float64
}

// latency is the target of calls that come one after the other.
var latency = Target{P50: 1.10, P99: 1.2}

const (
	small  = 1 << 10
	medium = 20 << 10
	large  = 1 << 20
)

// scenarios are all of them, in the order of the table.
var scenarios = []Scenario{
	{Name: "noise: plain, plain", Site: Plain, Size: small, Workers: 8},
	{Name: "keys", Site: Keys, Size: small, Workers: 8},
	{Name: "limit of requests", Site: Requests, Size: small, Workers: 8},
	{Name: "caddy-ratelimit", Site: RateLimit, Size: small, Workers: 8},
	{Name: "limit of requests, caddy-ratelimit", Site: Requests, Against: RateLimit, Size: small, Workers: 8},
	{Name: "limit of tokens", Site: Tokens, Size: small, Workers: 8},
	{Name: "full", Site: Full, Size: small, Workers: 8, Target: Target{CPU: 1.12, P50: 1.10, P99: 1.2, Slower: 1 / 0.92, Allocs: 40}},
	{Name: "full, 1 at a time", Site: Full, Size: small, Workers: 1, Target: latency},
	{Name: "full, 64 at a time", Site: Full, Size: small, Workers: 64},
	{Name: "full, 500 at a time", Site: Full, Size: small, Workers: 500},
	{Name: "full, 500 calls a second", Site: Full, Size: small, Workers: 64, Rate: 500, Target: latency},
	{Name: "full, access log", Site: Full, Size: small, Workers: 8, AccessLog: true},
	{Name: "full, 20 KB", Site: Full, Size: medium, Workers: 8, Target: Target{CPU: 1.15}},
	{Name: "full, 1 MB", Site: Full, Size: large, Workers: 8},
	{Name: "full, Redis", Site: Full, Size: small, Workers: 8, Redis: true},
	{Name: "full, Redis, 20 KB, 64 at a time", Site: Full, Size: medium, Workers: 64, Redis: true},
	{Name: "full, 1,000 consumers", Site: Full, Size: small, Workers: 8, Consumers: 1000},
	{Name: "full, 1,000,000 consumers by header", Site: Full, Size: small, Workers: 8, Consumers: 1_000_000},
	{Name: "full, 64 streams", Site: Full, Size: small, Events: 200, Pace: 10 * time.Millisecond, Workers: 64, Pairs: 3},
	{Name: "full, 500 streams", Site: Full, Size: small, Events: 200, Pace: 40 * time.Millisecond, Workers: 500, Pairs: 2, Target: Target{CPU: 1.06, Event: 1.2, Memory: 8}},
	{Name: "full, 500 streams that ask for usage", Site: Full, Size: small, Events: 200, Pace: 40 * time.Millisecond, Workers: 500, Pairs: 2, Asked: true},
}

// defaults of a scenario that is no stream.
const (
	defaultSlice = 250 * time.Millisecond
	defaultPairs = 12
)

// load is the load of a scenario, with so many times the usual pairs.
func (s *Scenario) load(times float64) *load.Load {
	l := &load.Load{Workers: s.Workers, Rate: s.Rate, Consumers: s.Consumers, Slice: s.Slice, Pairs: s.Pairs}
	if s.Events == 0 && l.Slice == 0 {
		l.Slice = defaultSlice
	}
	if l.Pairs == 0 {
		l.Pairs = defaultPairs
	}
	l.Pairs = max(1, int(float64(l.Pairs)*times))
	return l
}

// request is what clients send.
func (s *Scenario) request() *load.Request {
	header := []string{"Authorization: Bearer " + server.Key(0), "User-Agent: OpenAI/Python 2.8.0", "Accept: application/json"}
	if s.Consumers > server.MostKeys { // the first number in a header is the consumer's
		header = append([]string{server.ConsumerHeader + ": " + load.ConsumerZero}, header...)
	}
	if s.Events > 0 {
		header = append(header, provider.EventsHeader+": "+strconv.Itoa(s.Events), provider.PaceHeader+": "+s.Pace.String())
	} else {
		header = append(header, provider.SizeHeader+": "+strconv.Itoa(s.Size))
	}
	return load.NewRequest("/v1/chat/completions", header, s.body(), s.Events > 0)
}

// body is the body of a request.
func (s *Scenario) body() []byte {
	options := ""
	if s.Events > 0 {
		options = `"stream":true,`
	}
	if s.Asked {
		options += `"stream_options":{"include_usage":true},`
	}
	begin := `{"model":"gpt-4o-mini",` + options + `"max_completion_tokens":40,"messages":[` +
		`{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"`
	const rest = `"}]}`
	return []byte(begin + provider.Text(s.Size-len(begin)-len(rest)) + rest)
}

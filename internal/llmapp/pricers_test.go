package llmapp

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

func init() {
	caddy.RegisterModule(new(testPricer))
	caddy.RegisterModule(new(testLookout))
}

// named is a pricer that is known by its name alone.
type named string

func (named) Price(*meter.Priced) (money.USD, meter.CostStatus)           { return 0, meter.CostUnpriced }
func (named) Expect(*meter.Priced, int64, int64) (usd money.USD, ok bool) { return 0, false }
func (named) Worst(*meter.Priced, int64, int64) (usd money.USD, ok bool)  { return 0, false }
func (named) Denies(bool) bool                                            { return false }

// testPricer stands for llm_cost.
type testPricer struct {
	Name named `json:"name"`
}

func (*testPricer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_price", New: func() caddy.Module { return new(testPricer) }}
}

func (h *testPricer) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}
func (h *testPricer) LLMRole() string { return string(RolePricer) }
func (h *testPricer) Pricer() meter.Pricer {
	if h.Name == "" {
		return nil
	}
	return h.Name
}

// testLookout stands for cost_limit.
type testLookout struct {
	Name string `json:"name"`
}

// told is what lookouts of the running config were told, and how often.
var told = struct {
	ahead map[string]Ahead
	times map[string]int
}{}

func (*testLookout) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_budget", New: func() caddy.Module { return new(testLookout) }}
}

func (h *testLookout) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}
func (h *testLookout) LLMRole() string { return string(RoleLimiter) }
func (h *testLookout) LookAhead(a Ahead) {
	told.ahead[h.Name] = a
	told.times[h.Name]++
}

func TestLookoutsAreToldWhatIsAhead(t *testing.T) {
	price := func(name string) string { return `{"handler":"test_price","name":"` + name + `"}` }
	budget := func(name string) string { return `{"handler":"test_budget","name":"` + name + `"}` }
	upstream := func(dial string) string {
		return `{"handler":"reverse_proxy","upstreams":[{"dial":"` + dial + `"}]}`
	}
	group := func(r string) string { return with(`"group":"g"`, r) }
	invoke := `{"handler":"invoke","name":"up"}`
	for _, tc := range []struct {
		name, routes, server string
		want                 string // of budget b: pricers, then ! if it meets one always, then its upstream
	}{
		{"nothing", route("", budget("b")), "", " "},
		{"prices before it", route("", price("p"), budget("b"), proxy), "", " 127.0.0.1"},
		{"prices behind it", route("", budget("b"), price("p"), proxy), "", "p! 127.0.0.1"},
		{"prices before and behind it", route("", price("p"), budget("b"), price("q"), proxy), "", "q! 127.0.0.1"},
		{"prices twice behind it", route("", budget("b"), price("p"), price("q"), proxy), "", "q! 127.0.0.1"},
		{"the same prices twice", route("", budget("b"), price("p"), price("p"), proxy), "", "p! 127.0.0.1"},
		{"in another route", routes(route("", budget("b")), route("", price("p")), route("", proxy)), "", "p! 127.0.0.1"},
		{"in a route block", route("", subroute(route("", budget("b")), route("", price("p")), route("", proxy))), "", "p! 127.0.0.1"},
		{"a budget in a route block", routes(route("", subroute(route("", budget("b")))), route("", price("p"), proxy)), "", "p! 127.0.0.1"},
		{"for some calls", routes(route("", budget("b")), route("/a/*", price("p")), route("", proxy)), "", "p 127.0.0.1"},
		{"for some calls, then for all", routes(route("", budget("b")), route("/a/*", price("p")), route("", price("q"), proxy)), "", "q! 127.0.0.1"},
		{"for all calls, then for some", routes(route("", budget("b"), price("q")), route("/a/*", price("p")), route("", proxy)), "", "p q! 127.0.0.1"},
		{"for the same calls", route("/a/*", subroute(route("", budget("b")), route("", price("p")), route("", proxy))), "", "p! 127.0.0.1"},
		{"an upstream for some calls in between", routes(route("", budget("b")), with(`"terminal":true`, route("/a/*", upstream("a.example:443"))), route("", price("p"), upstream("b.example:443"))), "", "p "},
		{"handle blocks", routes(
			route("", budget("b")),
			group(route("/a/*", subroute(route("", price("p"), upstream("a.example:443"))))),
			group(route("", subroute(route("", price("q"), upstream("b.example:443"))))),
		), "", "p q "},
		{"a budget in a handle block", routes(
			group(route("/a/*", subroute(route("", budget("b"), price("p"), upstream("a.example:443"))))),
			group(route("", subroute(route("", price("q"), upstream("b.example:443"))))),
		), "", "p! a.example"},
		{"a budget in a handle block, prices behind the blocks", routes(
			group(route("/a/*", subroute(route("", budget("b"))))),
			group(route("", subroute(route("", price("q"))))),
			route("", price("p"), upstream("a.example:443")),
		), "", "p! a.example"},
		{"a budget in the last group of a block, prices behind the block", route("", subroute(
			group(route("/a/*", budget("b"))), group(route("", budget("c"))),
		), price("p"), upstream("a.example:443")), "", "p! a.example"},
		{"prices that leave it to others", route("", budget("b"), price("p"), price(""), proxy), "", "p! 127.0.0.1"},
		{"two sites", routes(host("a.example", route("", budget("b"), price("p"), proxy)), host("b.example", route("", price("q"), proxy))), "", "p! 127.0.0.1"},
		{"in a named route", route("", budget("b"), invoke), `,"named_routes":{"up":` + route("", price("p"), proxy) + `}`, "p! 127.0.0.1"},
		{"a budget in a named route", route("", invoke, price("p"), proxy), `,"named_routes":{"up":` + route("", budget("b")) + `}`, "p! 127.0.0.1"},
		{"a budget in a named route that two sites invoke", routes(
			host("a.example", route("", invoke, price("p"), proxy)), host("b.example", route("", invoke, price("q"), proxy)),
		), `,"named_routes":{"up":` + route("", budget("b")) + `}`, "p q! 127.0.0.1"},
		{"a budget in a named route that nobody invokes", route("", respond), `,"named_routes":{"up":` + route("", budget("b"), price("p"), proxy) + `}`, "p! 127.0.0.1"},
		{"in the error routes", route("", proxy), `,"errors":{"routes":[` + route("", budget("b"), price("p"), proxy) + `]}`, "p! 127.0.0.1"},
		{"several upstreams of one host", routes(route("", budget("b")), route("/a/*", upstream("a.example:443")), route("", upstream("a.example:8443"))), "", " a.example"},
		{"an upstream that calls decide", route("", budget("b"), upstream("{http.request.header.X}:443")), "", " "},
		{"upstreams of two hosts", routes(route("", budget("b")), route("/a/*", upstream("a.example:443")), route("", upstream("b.example:443"))), "", " "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			told.ahead, told.times = make(map[string]Ahead), make(map[string]int)
			mustRun(t, config(t, tc.routes, tc.server, `,"llm":{}`))
			a := told.ahead["b"]
			var names []string
			for _, p := range a.Pricers {
				names = append(names, string(p.(named)))
			}
			slices.Sort(names)
			got := strings.Join(names, " ")
			if a.Always {
				got += "!"
			}
			if got += " " + a.Upstream; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if told.times["b"] != 1 {
				t.Errorf("told %d times", told.times["b"])
			}
		})
	}
}

func TestUpstreamsAreToldByWhatTheyCost(t *testing.T) {
	got := apart([]string{"10.0.0.1", "10.0.0.2", "a.openai.azure.com", "api.groq.com", "b.openai.azure.com", "vllm"})
	if want := []string{"", "a.openai.azure.com", "api.groq.com", "b.openai.azure.com"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPricesBehindAnAnswerAreRefused(t *testing.T) {
	err := run(t, config(t, route("", proxy, `{"handler":"test_price","name":"p"}`), "", `,"llm":{}`))
	if err == nil || !strings.Contains(err.Error(), "test_price stands behind reverse_proxy") || !strings.Contains(err.Error(), "nothing would be priced") {
		t.Errorf("got %v", err)
	}
}

func TestStartersRunOnceTheConfigIsToRun(t *testing.T) {
	a := new(App)
	ran := 0
	a.routes = func() error { return errStart }
	a.OnStart(func() { ran++ })
	if err := a.Start(); err == nil || ran != 0 {
		t.Errorf("a config that is wrong: %v, and %d ran", err, ran)
	}
}

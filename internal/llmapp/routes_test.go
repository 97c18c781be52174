package llmapp

import (
	"strings"
	"testing"
)

// Parts of routes.
const (
	auth     = `{"handler":"test_limit","role":"auth"}`
	limiter  = `{"handler":"test_limit","role":"limiter"}`
	consumer = `{"handler":"test_limit","role":"consumer_limiter"}`
	retry    = `{"handler":"test_limit","role":"retry"}`
	tells    = `{"handler":"test_limit","role":"usage"}`
	proxy    = `{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:9"}]}`
	respond  = `{"handler":"static_response","body":"ok"}`
)

// route is a route of handlers; match is a path, empty for all.
func route(match string, handlers ...string) string {
	m := ""
	if match != "" {
		m = `"match":[{"path":["` + match + `"]}],`
	}
	return `{` + m + `"handle":[` + strings.Join(handlers, ",") + `]}`
}

// with adds a member to a route.
func with(member, route string) string { return `{` + member + `,` + route[1:] }

func routes(rs ...string) string { return strings.Join(rs, ",") }

func subroute(rs ...string) string {
	return `{"handler":"subroute","routes":[` + routes(rs...) + `]}`
}

func host(name string, rs ...string) string {
	return `{"match":[{"host":["` + name + `"]}],"handle":[` + subroute(rs...) + `],"terminal":true}`
}

func TestRoutesAreChecked(t *testing.T) {
	placeholder := func(name string) string {
		return `{"handler":"test_limit","role":"limiter","placeholders":["` + name + `"]}`
	}
	mapper := func(name string) string {
		return `{"handler":"map","source":"{http.request.host}","destinations":["{` + name + `}"],"defaults":["1"]}`
	}
	invoke := `{"handler":"invoke","name":"up"}`
	for _, tc := range []struct {
		name   string
		routes string
		server string
		want   []string // parts of the error; nil if there is none
	}{
		{"a limiter before an upstream", routes(route("", auth), route("", consumer), route("", limiter), route("", proxy)), "", nil},
		{"nothing of ours", route("", respond), "", nil},

		{"a limiter behind an upstream", route("", proxy, limiter), "", []string{"server main", "test_limit stands behind reverse_proxy", "nothing would be counted"}},
		{"a limiter behind an upstream, in a route block", route("", subroute(route("", proxy), route("", limiter))), "", []string{"test_limit stands behind reverse_proxy"}},
		{"a limiter behind a route block with an upstream", routes(route("", subroute(route("", proxy))), route("", limiter)), "", []string{"test_limit stands behind reverse_proxy"}},
		{"a limiter with a matcher behind an upstream", routes(route("", proxy), route("/v1/*", limiter)), "", []string{"test_limit stands behind reverse_proxy"}},
		{"a limiter behind an answer", route("", respond, limiter), "", []string{"behind static_response"}},
		{"a limiter behind an error", route("", `{"handler":"error","status_code":"404"}`, limiter), "", []string{"behind error"}},
		{"a limiter behind files", route("", `{"handler":"file_server"}`, limiter), "", []string{"behind file_server"}},
		{"a limiter behind an answer for others", routes(route("/health", respond), route("", limiter, proxy)), "", nil},
		{"a limiter behind an answer for the same", routes(route("/v1/*", proxy), route("/v1/*", limiter)), "", []string{"behind a handler with the same matcher"}},
		{"a limiter behind an answer for the same, and others between", routes(route("/v1/*", proxy), route("/a", respond), route("/v1/*", limiter)), "", []string{"same matcher"}},
		{"two limiters for the same", routes(route("/v1/*", limiter), route("/v1/*", limiter), route("/v1/*", proxy)), "", nil},
		{"a limiter that no call comes to", routes(with(`"terminal":true`, route("", auth)), route("", limiter)), "", []string{"behind a terminal route"}},

		{"use is told before the limiters", route("", auth, tells, consumer, proxy), "", nil},
		{"use is told without api_key_auth", route("", tells, limiter, proxy), "", nil},
		{"use is told behind a limiter", route("", auth, consumer, tells, proxy), "", []string{"test_limit stands behind a limiter", "would count as a call"}},
		{"use is told behind a limiter of other calls", routes(route("/v1/*", limiter), route("", tells, proxy)), "", nil},
		{"use is told before api_key_auth", route("", tells, auth, proxy), "", []string{"test_limit stands before test_limit", "would know nobody"}},
		{"use is told before api_key_auth, in a route block", routes(route("", subroute(route("", tells))), route("", auth, proxy)), "", []string{"would know nobody"}},
		{"use is told in a handle block of its own", routes(
			with(`"group":"g"`, route("/llm/usage", subroute(route("", tells)))),
			with(`"group":"g"`, route("", subroute(route("", auth, consumer, proxy)))),
		), "", nil},
		{"use is told behind an answer", route("", respond, tells), "", []string{"test_limit stands behind static_response", "nobody could ask"}},

		{"handle blocks", routes(
			with(`"group":"g"`, route("/a/*", subroute(route("", proxy)))),
			with(`"group":"g"`, route("/b/*", subroute(route("", limiter, proxy)))),
			with(`"group":"g"`, route("", subroute(route("", consumer, respond)))),
		), "", nil},
		{"a handle block that is wrong inside", with(`"group":"g"`, route("/a/*", subroute(route("", proxy, limiter)))), "", []string{"behind reverse_proxy"}},
		{"api_key_auth in one handle block, a limiter in the other", routes(
			with(`"group":"g"`, route("/a/*", subroute(route("", consumer)))),
			with(`"group":"g"`, route("/b/*", subroute(route("", auth)))),
		), "", nil},

		{"a consumer limiter before api_key_auth", routes(route("", consumer), route("", auth), route("", proxy)), "", []string{"test_limit stands before test_limit", "`default`", "put api_key_auth first"}},
		{"a consumer limiter before api_key_auth, in a route block", route("", subroute(route("", consumer), route("", auth))), "", []string{"put api_key_auth first"}},
		{"a consumer limiter with a matcher before api_key_auth", routes(route("/v1/*", consumer), route("", auth)), "", []string{"put api_key_auth first"}},
		{"a consumer limiter for some calls of a group before api_key_auth", routes(
			with(`"group":"g"`, route("/a/*", consumer)), with(`"group":"g"`, route("", limiter)), route("", auth),
		), "", []string{"put api_key_auth first"}},
		{"a consumer limiter in the last group of a block before api_key_auth", route("", subroute(
			with(`"group":"g"`, route("/a/*", consumer)), with(`"group":"g"`, route("", limiter)),
		), auth), "", []string{"put api_key_auth first"}},
		{"a consumer limiter without api_key_auth", route("", consumer, proxy), "", nil},
		{"another limiter before api_key_auth", route("", limiter, auth, consumer, proxy), "", nil},
		{"api_key_auth twice", route("", auth, consumer, auth, proxy), "", nil},

		{"two sites", routes(host("a.example", route("", proxy)), host("b.example", route("", limiter, proxy))), "", nil},
		{"two sites, one without keys", routes(host("a.example", route("", consumer, proxy)), host("b.example", route("", auth, consumer, proxy))), "", nil},
		{"two sites, one of them wrong", routes(host("a.example", route("", limiter, proxy)), host("b.example", route("", proxy, limiter))), "", []string{"behind reverse_proxy"}},
		{"a site for all after a site", routes(host("a.example", route("", proxy)), route("", limiter, proxy)), "", nil},

		{"a named route", route("", invoke), `,"named_routes":{"up":` + route("", limiter, proxy) + `}`, nil},
		{"a named route that is wrong", route("", respond), `,"named_routes":{"up":` + route("", proxy, limiter) + `}`, []string{"named route up", "behind reverse_proxy"}},
		{"a limiter behind a named route with an upstream", route("", invoke, limiter), `,"named_routes":{"up":` + route("", proxy) + `}`, []string{"behind reverse_proxy"}},
		{"a limiter before a named route with an upstream", route("", limiter, invoke), `,"named_routes":{"up":` + route("", proxy) + `}`, nil},
		{"a consumer limiter before a named route with api_key_auth", route("", consumer, invoke), `,"named_routes":{"up":` + route("", auth) + `}`, []string{"put api_key_auth first"}},
		{"a named route that invokes itself", route("", invoke), `,"named_routes":{"up":` + route("/x", invoke) + `}`, nil},

		{"an unknown placeholder", route("", placeholder("tier")), "", []string{"test_limit", "placeholder {tier} is unknown"}},
		{"a placeholder of a map", route("", mapper("tier"), placeholder("tier")), "", nil},
		{"a placeholder of a map elsewhere in the site", routes(host("a.example", route("", mapper("tier"))), host("b.example", route("", placeholder("tier")))), "", nil},
		{"a placeholder of a map in a named route", route("", placeholder("tier")), `,"named_routes":{"up":` + route("", mapper("tier")) + `}`, nil},
		{"a placeholder of another map", route("", mapper("other"), placeholder("tier")), "", []string{"{tier} is unknown"}},

		{"retries behind limiters", routes(route("", limiter), route("", limiter, retry, proxy)), "", nil},
		{"retries without a limiter", route("", retry, proxy), "", nil},
		{"a limiter behind retries", route("", limiter, retry, limiter, proxy), "", []string{"test_limit stands outside of test_limit", "counted at its first attempt alone"}},
		{"a limiter behind retries in a route block", routes(route("", subroute(route("", retry))), route("", limiter, proxy)), "", []string{"stands outside of"}},
		{"a limiter behind retries with a matcher", routes(route("/x", retry), route("", limiter, proxy)), "", []string{"stands outside of"}},
		{"a limiter behind retries that answer", routes(route("/x", retry, proxy), route("", limiter, proxy)), "", nil},
		{"a limiter and retries that exclude each other", routes(with(`"group":"g"`, route("/x", retry)), with(`"group":"g"`, route("/y", limiter)), route("", proxy)), "", nil},
		{"a limiter behind retries of a group", routes(with(`"group":"g"`, route("/x", retry)), with(`"group":"g"`, route("/y", limiter)), route("", limiter, proxy)), "", []string{"stands outside of"}},
		{"retries of retries", route("", limiter, retry, retry, proxy), "", []string{"would multiply"}},

		{"a limiter in the error routes", route("", limiter, proxy), `,"errors":{"routes":[` + route("", consumer, proxy) + `]}`, nil},
		{"a limiter behind an answer in the error routes", route("", limiter, proxy), `,"errors":{"routes":[` + route("", respond, limiter) + `]}`, []string{"handle_errors", "behind static_response"}},
		{"an unknown placeholder in the error routes", route("", proxy), `,"errors":{"routes":[` + route("", placeholder("tier")) + `]}`, []string{"handle_errors", "{tier} is unknown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(t, config(t, tc.routes, tc.server, `,"llm":{}`))
			if tc.want == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("the config is accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestAnUpstreamInTheErrorRoutesIsWarnedOf(t *testing.T) {
	const warning = "handle_errors has an upstream"
	for _, tc := range []struct {
		name    string
		routes  string
		errors  string
		warning bool
	}{
		{"an upstream", route("", limiter, proxy), route("", proxy), true},
		{"an upstream further in", route("", limiter, proxy), route("", subroute(route("/x", proxy))), true},
		{"an answer", route("", limiter, proxy), route("", respond), false},
		{"an upstream behind a limiter", route("", limiter, proxy), route("", limiter, proxy), false},
		{"an upstream, and no limiter anywhere", route("", proxy), route("", proxy), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustRun(t, config(t, tc.routes, `,"errors":{"routes":[`+tc.errors+`]}`, `,"llm":{}`))
			if warned := strings.Contains(testLog.String(), warning); warned != tc.warning {
				t.Errorf("warned %t: %s", warned, testLog.String())
			}
		})
	}
}

func TestWithoutAnHTTPAppThereAreNoRoutes(t *testing.T) {
	err := run(t, []byte(`{"admin":{"disabled":true,"config":{"persist":false}},"logging":{"logs":{"default":{"writer":{"output":"test_log"}}}},"apps":{"llm":{}}}`))
	if err != nil {
		t.Error(err)
	}
}

package llmusage_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCallersSeeTheirOwn(t *testing.T) {
	g := start(t, `
	llm_usage
	llm_cost {
		price * {
			input 0
			output 0
			request 0.125
		}
	}
	token_limit own-tokens {
		consumer_based
		limit 1k tokens per hour
		limit 5 concurrent
	}
	token_limit own-key {
		key {http.auth.user.id}
		limit 60 requests per day
	}
	token_limit own-all {
		limit 1M tokens per day
	}
	cost_limit own-budget {
		consumer_based
		limit $10 per month
	}
	`)
	g.chat(keyA, 200)
	g.chat(keyA, 200)
	g.chat(keyB, 200)

	a := g.usage(keyA)
	if a.Consumer != "app-a" || a.KeyID != "key-a" || !a.Current {
		t.Errorf("got %+v", a)
	}
	want := []string{"own-tokens tokens per hour 120/1000", "own-tokens concurrent 0/5", "own-key requests per day 2/60", "own-budget usd per month 0.25/10"}
	if got := a.used(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	b := g.usage(keyB)
	want = []string{"own-tokens tokens per hour 60/1000", "own-tokens concurrent 0/5", "own-key requests per day 1/60", "own-budget usd per month 0.125/10"}
	if got := b.used(); b.Consumer != "app-b" || !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// a key bound to no application counts with others but for what its id is counted by
	u := g.usage(keyUnbound)
	if got := u.used(); u.Consumer != "" || !slices.Equal(got, []string{"own-key requests per day 0/60"}) {
		t.Errorf("got %q of %q", got, u.Consumer)
	}
}

func TestAskingCountsNothing(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit free {\nconsumer_based\nlimit 1 requests per day\n}\n")
	for range 3 {
		g.usage(keyA)
	}
	g.chat(keyA, 200)
	g.chat(keyA, 429)
	a := g.usage(keyA)
	for until := time.Now().Add(time.Minute); len(a.Limits) > 0 && string(a.Limits[0].Used) == "0" && time.Now().Before(until); a = g.usage(keyA) {
		time.Sleep(100 * time.Millisecond) // it was told before, and is told again for a second
	}
	if got := a.used(); !slices.Equal(got, []string{"free requests per day 1/1"}) || string(a.Limits[0].Remaining) != "0" {
		t.Errorf("a limit that is used up: %q", got)
	}
}

func TestRefusals(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit refusals {\nconsumer_based\nlimit 100 requests per day\n}\n")
	for _, tc := range []struct {
		name, method, key string
		status            int
		want, header      string
	}{
		{"nobody", "GET", "", 401, "no_consumer", "Www-Authenticate"},
		{"a wrong key", "GET", "sk-wrong", 401, "invalid_api_key", "Www-Authenticate"},
		{"a key of no application", "GET", keyUnbound, 403, "no_application", ""},
		{"writing", "POST", keyA, 405, "method_not_allowed", "Allow"},
		{"deleting", "DELETE", keyA, 405, "method_not_allowed", "Allow"},
		{"a preflight", "OPTIONS", keyA, 405, "method_not_allowed", "Allow"},
		{"an unknown method", "SPY", keyA, 405, "method_not_allowed", "Allow"},
		{"a word in lower case", "get", keyA, 405, "method_not_allowed", "Allow"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := g.do(tc.method, "/llm/usage", tc.key, "")
			if w.Code != tc.status || !strings.Contains(w.Body.String(), `"code":"`+tc.want+`"`) || tc.header != "" && w.Header().Get(tc.header) == "" {
				t.Errorf("got %d, %v: %s", w.Code, w.Header(), w.Body)
			}
			if strings.Contains(w.Body.String(), "refusals") {
				t.Errorf("a limit is in %s", w.Body)
			}
			p := g.do(tc.method, "/llm/usage", tc.key, "", "Accept", "text/html")
			if tc.want != "invalid_api_key" && (p.Code != tc.status || !strings.Contains(p.Body.String(), `<p class="notice">`) || p.Header().Get("Content-Type") != "text/html; charset=utf-8") {
				t.Errorf("the page is %d: %s", p.Code, p.Body)
			}
		})
	}
	if got := g.usage(keyA).Limits[0].Used; string(got) != "0" {
		t.Errorf("refusals counted %s requests", got)
	}
}

func TestHeadersOfAllAnswers(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit head {\nconsumer_based\nlimit 100 requests per day\n}\n")
	for _, accept := range []string{"application/json", "text/html"} {
		for _, method := range []string{"GET", "HEAD", "PUT"} {
			w := g.do(method, "/llm/usage", keyA, "", "Accept", accept)
			h := w.Header()
			if h.Get("Cache-Control") != "no-store" || h.Get("Vary") != "Accept" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" ||
				!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s of %s has %v", method, accept, h)
			}
			if method == "HEAD" && (w.Code != 200 || w.Body.Len() > 0 || h.Get("Content-Length") == "" || !strings.HasPrefix(h.Get("Content-Type"), accept)) {
				t.Errorf("HEAD of %s is %d, %v: %s", accept, w.Code, h, w.Body)
			}
		}
	}
}

func TestOtherPathsPass(t *testing.T) {
	g := start(t, "llm_usage /mine\ntoken_limit paths {\nconsumer_based\nlimit 100 requests per day\n}\n")
	for _, tc := range []struct {
		target  string
		answers bool
	}{
		{"/mine", true},
		{"/mine?consumer=app-b", true},
		{"//mine", true}, // as Caddy's own matcher has it
		{"/MINE", true},
		{"/%6dine", true},
		{"/mine/", false},
		{"/mine/x", false},
		{"/mine%2f", false},
		{"/llm/usage", false},
		{"/", false},
	} {
		w := g.do("GET", tc.target, keyA, "")
		if got := strings.Contains(w.Body.String(), `"consumer":"app-a"`); got != tc.answers || w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", tc.target, w.Code, w.Body)
		}
	}
}

func TestWhatIsNotShown(t *testing.T) {
	g := start(t, `
	llm_usage
	token_limit hidden-shared {
		limit 100 requests per day
		headers on
	}
	token_limit hidden-group {
		key {http.vars.llm_group}
		limit 100 requests per day
	}
	token_limit hidden-header {
		key {header.X-Team}
		limit 100 requests per day
	}
	token_limit hidden-off {
		consumer_based
		limit 100 requests per day
		headers off
	}
	token_limit hidden-shadow {
		consumer_based
		limit 100 requests per day shadow
		limit 200 requests per hour
	}
	token_limit shown-own {
		key {http.auth.user.id} {header.X-Team}
		limit 100 requests per day
	}
	`)
	g.chat(keyA, 200)
	a := g.usage(keyA, "X-Team", "blue")
	want := []string{"hidden-shadow requests per hour 1/200", "shown-own requests per day 0/100"}
	if got := a.used(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestModelsAndGroups(t *testing.T) {
	g := start(t, `
	llm_usage
	token_limit blocks {
		consumer_based
		limit 100 requests per day
		group gold {
			limit 200 requests per day
			model gpt-* {
				limit 1k tokens per hour
				per_model
			}
			model qwen* glm* {
				limit 5 images per day
			}
		}
	}
	`)
	before := g.usage(keyA)
	want := []string{"blocks requests per day 0/200", "blocks tokens per hour (gpt-*) 0/1000", "blocks images per day (qwen* glm*) 0/5"}
	if got := before.used(); before.Group != "gold" || !slices.Equal(got, want) {
		t.Errorf("group %q: got  %q\nwant %q", before.Group, got, want)
	}
	if l := before.Limits[1]; !l.PerModel || l.Group != "gold" || !slices.Equal(l.Models, []string{"gpt-*"}) {
		t.Errorf("got %+v", l)
	}
	g.chat(keyA, 200)
	after := g.usage(keyA)
	want[0], want[1] = "blocks requests per day 1/200", "blocks tokens per hour (gpt-*) gpt-4o 60/1000"
	if got := after.used(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	none := g.usage(keyB)
	if got := none.used(); none.Group != "" || !slices.Equal(got, []string{"blocks requests per day 0/100"}) {
		t.Errorf("group %q: got %q", none.Group, got)
	}
}

func TestInstancesOfAnotherPlaceAreNamed(t *testing.T) {
	const site = `
	handle /llm/usage {
		%
	}
	handle {
		token_limit place-a {
			consumer_based
			limit 100 requests per day
		}
		token_limit place-b {
			consumer_based
			limit 200 requests per day
		}
		respond ok
	}
	`
	with := func(directive string) string { return strings.Replace(site, "%", directive, 1) }
	g := start(t, with("llm_usage"))
	if a := g.usage(keyA); len(a.Limits) != 0 {
		t.Errorf("it shows %q, which stand elsewhere", a.used())
	}
	g = start(t, with("llm_usage {\ninstances place-b\n}"))
	a := g.usage(keyA)
	if got := a.used(); !slices.Equal(got, []string{"place-b requests per day 0/200"}) {
		t.Errorf("got %q", got)
	}
}

func TestPeopleMayComeAnotherWay(t *testing.T) {
	g, err := load(t, `:0 {
	handle /llm/usage {
		route {
			vars x-wso2-application-id {header.X-Person}
			llm_usage {
				instances people
			}
		}
	}
	handle {
		`+keys+`
		token_limit people {
			consumer_based
			limit 100 requests per day
		}
		`+provider+`
	}
}
`)
	if err != nil {
		t.Fatal(err)
	}
	g.chat(keyA, 200)
	a := g.usage("", "X-Person", "app-a")
	if got := a.used(); a.Consumer != "app-a" || !slices.Equal(got, []string{"people requests per day 1/100"}) {
		t.Errorf("%s: got %q", a.Consumer, got)
	}
}

func TestOthersSitesAreNotShown(t *testing.T) {
	const other = "token_limit other-%s {\nconsumer_based\nlimit 100 requests per day\n}\n"
	g, err := load(t, "http://a.test {\n"+keys+"llm_usage\n"+strings.Replace(other, "%s", "a", 1)+provider+"}\nhttp://b.test {\n"+
		keys+strings.Replace(other, "%s", "b", 1)+provider+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	w := g.do("GET", "http://a.test/llm/usage", keyA, "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "other-a") || strings.Contains(w.Body.String(), "other-b") {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
}

func TestPlacesAreChecked(t *testing.T) {
	const limiter = "token_limit place {\nconsumer_based\nlimit 1 requests per day\n}\n"
	for _, tc := range []struct{ name, site, want string }{
		{"behind a limiter", keys + "route {\n" + limiter + "llm_usage\n}\n" + provider, "llm_usage stands behind a limiter"},
		{"before api_key_auth", "route {\nllm_usage\n" + keys + limiter + "}\n" + provider, "llm_usage stands before api_key_auth"},
		{"behind a responder", "route {\n" + keys + "respond ok\nllm_usage\n}\n", "llm_usage stands behind static_response"},
		{"an unknown instance", keys + "llm_usage {\ninstances plaza\n}\n" + limiter + provider, `llm_usage: there is no instance "plaza"; there are place`},
		{"a shared instance", keys + "llm_usage {\ninstances all\n}\ntoken_limit all {\nlimit 1 requests per day\n}\n" + provider, `llm_usage: all callers share the counter of instance "all"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := load(t, ":0 {\n"+tc.site+"}\n"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestWhoAsksTooOftenIsToldToWait(t *testing.T) {
	g := start(t, "llm_usage\ntoken_limit often {\nconsumer_based\nlimit 100 requests per day\n}\n")
	waits := false
	for range 1000 { // at most 20 of each second
		w := g.do("GET", "/llm/usage", keyA, "")
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1" {
			waits = true
			break
		}
	}
	if !waits {
		t.Error("1,000 requests are answered")
	}
	if w := g.do("GET", "/llm/usage", keyB, ""); w.Code != http.StatusOK {
		t.Errorf("another caller gets %d", w.Code)
	}
}

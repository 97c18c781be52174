package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestWindowsHaveWordsAndAnID(t *testing.T) {
	for _, tc := range []struct {
		rule, zone string
		words, id  string
		level      string
		kind       store.Kind
		length     time.Duration
		limit      int64
		refill     int64
	}{
		{"5 requests per minute", "", "requests per minute", "requests per minute", "minutely", store.KindCalendar, time.Minute, 5, 0},
		{"5 requests per hour", "", "requests per hour", "requests per hour", "hourly", store.KindCalendar, time.Hour, 5, 0},
		{"5 requests per day", "UTC", "requests per day", "requests per day", "daily", store.KindCalendar, 24 * time.Hour, 5, 0},
		{"5 tokens per week", "Europe/Berlin", "tokens per week", "tokens per week Europe/Berlin", "weekly", store.KindCalendar, 7 * 24 * time.Hour, 5, 0},
		{"5 tokens per month", "Asia/Kolkata", "tokens per month", "tokens per month Asia/Kolkata", "monthly", store.KindCalendar, 31 * 24 * time.Hour, 5, 0},
		{"5 tokens per 90s", "Europe/Berlin", "tokens per 90s", "tokens per 1m30s", "90s", store.KindFixed, 90 * time.Second, 5, 0},
		{"5 tokens per 1h", "", "tokens per 1h", "tokens per 1h0m0s", "1h", store.KindFixed, time.Hour, 5, 0},
		{"5 tokens per 60m", "", "tokens per 60m", "tokens per 1h0m0s", "60m", store.KindFixed, time.Hour, 5, 0},
		{"5 tokens per 30d", "", "tokens per 30d", "tokens per 720h0m0s", "30d", store.KindFixed, 30 * 24 * time.Hour, 5, 0},
		{"5 tokens per rolling 1h", "", "tokens per rolling 1h", "tokens per rolling 1h0m0s", "rolling 1h", store.KindRolling, time.Hour, 5, 0},
		{"5 tokens per rolling day", "Europe/Berlin", "tokens per rolling day", "tokens per rolling 24h0m0s", "rolling day", store.KindRolling, 24 * time.Hour, 5, 0},
		{"5 tokens per minute burst 20", "Europe/Berlin", "tokens per minute burst", "tokens per burst 1m0s", "minute", store.KindBucket, time.Minute, 20, 5},
		{"5 tokens per 10s burst 2", "", "tokens per 10s burst", "tokens per burst 10s", "10s", store.KindBucket, 10 * time.Second, 2, 5},
		{"5 concurrent", "", "concurrent", "concurrent", "concurrent", store.KindNone, 0, 5, 0},
	} {
		t.Run(tc.rule+" "+tc.zone, func(t *testing.T) {
			c := Config{Limits: parse(t, tc.rule), Timezone: tc.zone}
			p, err := c.compile(TokenLimit)
			if err != nil {
				t.Fatal(err)
			}
			r := p.base.rules[0]
			if r.words != tc.words || r.store.ID != tc.id {
				t.Errorf("got words %q and id %q, want %q and %q", r.words, r.store.ID, tc.words, tc.id)
			}
			if got := level(r.window); got != tc.level {
				t.Errorf("got level %q, want %q", got, tc.level)
			}
			if k := r.store.Window.Kind(); k != tc.kind || r.length != tc.length {
				t.Errorf("got kind %d and length %s, want %d and %s", k, r.length, tc.kind, tc.length)
			}
			if r.limit != tc.limit || r.store.Refill != tc.refill {
				t.Errorf("got limit %d and refill %d, want %d and %d", r.limit, r.store.Refill, tc.limit, tc.refill)
			}
		})
	}
}

func TestAnIDDoesNotDependOnTheAmount(t *testing.T) {
	a, b := Config{Limits: parse(t, "5 tokens per hour burst 7")}, Config{Limits: parse(t, "6 tokens per 60m burst 8 shadow")}
	pa, err := a.compile(TokenLimit)
	if err != nil {
		t.Fatal(err)
	}
	pb, err := b.compile(TokenLimit)
	if err != nil {
		t.Fatal(err)
	}
	if pa.base.rules[0].store.ID != pb.base.rules[0].store.ID {
		t.Errorf("ids %q and %q differ: what has been used would be forgotten", pa.base.rules[0].store.ID, pb.base.rules[0].store.ID)
	}
}

func TestConfigsAreRefused(t *testing.T) {
	one := []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}
	rules := func(lines ...string) Config { return Config{Limits: parse(t, lines...)} }
	for _, tc := range []struct {
		name   string
		config Config
		want   []string // all of them stand in the error
	}{
		{"no limits", Config{}, []string{"at least one limit"}},
		{"two kinds of key", Config{ConsumerBased: true, Key: []string{"{http.vars.a}"}, Limits: one}, []string{"consumer_based", "key"}},
		{"a key that is no placeholder", Config{Key: []string{"X-Team"}, Limits: one}, []string{`"X-Team"`, "placeholder"}},
		{"a key of text and placeholder", Config{Key: []string{"a{http.vars.a}"}, Limits: one}, []string{"placeholder"}},
		{"a key twice", Config{Key: []string{"{http.vars.a}", "{http.vars.a}"}, Limits: one}, []string{`"{http.vars.a}"`, "twice"}},
		{"an unknown mode", Config{Mode: "fast", Limits: one}, []string{`mode "fast"`, "charge_after, reserve, strict"}},
		{"an unknown word for unmetered", Config{Unmetered: "yes", Limits: one}, []string{`unmetered "yes"`, "deny, allow"}},
		{"an unknown word for headers", Config{Headers: "true", Limits: one}, []string{`headers "true"`, "on, off"}},
		{"a reject status that is no error", Config{Reject: &Reject{Status: 200}, Limits: one}, []string{"200", "between 400 and 599"}},
		{"a timezone that differs by machine", Config{Timezone: "Local", Limits: one}, []string{"Local", "IANA"}},
		{"an unknown timezone", Config{Timezone: "Mars/Olympus", Limits: one}, []string{`"Mars/Olympus"`, "IANA"}},
		{"a timezone outside of the zone files", Config{Timezone: "../../etc/passwd", Limits: one}, []string{"IANA"}},
		{"a name like a path", Config{Name: "/a", Limits: one}, []string{`name "/a"`, "must not start with / or @"}},
		{"a name like a matcher", Config{Name: "@a", Limits: one}, []string{`name "@a"`, "must not start with / or @"}},
		{"a pool like a path", Config{Share: "/a", Limits: one}, []string{`share "/a"`, "must not start with / or @"}},
		{"a name with a blank", Config{Name: "a b", Limits: one}, []string{`name "a b"`, "blanks"}},
		{"a name with a placeholder", Config{Name: "{env.A}", Limits: one}, []string{"name", "braces"}},
		{"a long name", Config{Name: strings.Repeat("a", 129), Limits: one}, []string{"longer than 128"}},

		{"an unknown unit", rules("1 bananas per hour"), []string{"limits[0]", `"bananas"`, "requests, tokens"}},
		{"the unit of another limiter", rules("1 usd per hour"), []string{`"usd"`}},
		{"no unit", Config{Limits: []Rule{{Amount: "1", Window: "hour"}}}, []string{"unit"}},
		{"no amount", Config{Limits: []Rule{{Unit: Tokens, Window: "hour"}}}, []string{"limits[0]", `amount ""`}},
		{"an amount of zero", rules("1 requests per hour", "0 tokens per hour"), []string{"limits[1]", `"0"`, "greater than zero"}},
		{"no window", rules("1 tokens"), []string{"limit of tokens needs a window"}},
		{"an unknown window", rules("1 tokens per year"), []string{`window "year"`, "minute, hour, day, week or month"}},
		{"a window without a unit", rules("1 tokens per 60"), []string{`window "60"`}},
		{"a window of no time", rules("1 tokens per 0s"), []string{`window "0s"`, "at least 1s"}},
		{"a negative window", rules("1 tokens per -1h"), []string{`window "-1h"`, "at least 1s"}},
		{"a window that is too long", rules("1 tokens per 4000d"), []string{`window "4000d"`, "at most 3660 days"}},
		{"a window beyond all time", rules("1 tokens per 99999999999d"), []string{`window "99999999999d"`}},
		{"a window in µs", rules("1 tokens per 1000000µs"), []string{`window "1000000µs"`}},
		{"a rolling window with a burst", rules("1 tokens per rolling 1h burst 5"), []string{"either rolling or has a burst"}},
		{"a rolling month", rules("1 tokens per rolling month"), []string{"month has no fixed length"}},
		{"a month with a burst", rules("1 tokens per month burst 5"), []string{"month has no fixed length"}},
		{"a burst of zero", rules("1 tokens per hour burst 0"), []string{"burst", `"0"`, "greater than zero"}},
		{"a concurrent limit with a window", Config{Limits: []Rule{{Amount: "1", Unit: Concurrent, Window: "hour"}}}, []string{"concurrent calls has no window"}},
		{"a concurrent limit with a burst", Config{Limits: []Rule{{Amount: "1", Unit: Concurrent, Burst: "2"}}}, []string{"concurrent calls has no window"}},
		{"a rolling concurrent limit", Config{Limits: []Rule{{Amount: "1", Unit: Concurrent, Rolling: true}}}, []string{"concurrent calls has no window"}},

		{"a rule twice", rules("1 tokens per hour", "2 tokens per hour"), []string{"limits[1]", "tokens per hour", "twice"}},
		{"a rule twice in other words", rules("1 tokens per 1h", "2 tokens per 60m"), []string{"limits[1]", "tokens per 60m", "twice"}},
		{"a rolling rule twice in other words", rules("1 tokens per rolling day", "2 tokens per rolling 24h"), []string{"rolling 24h", "twice"}},
		{"a bucket twice", rules("1 tokens per minute burst 3", "2 tokens per 60s burst 4"), []string{"60s burst", "twice"}},
		{"two concurrent limits", rules("1 concurrent", "2 concurrent"), []string{"concurrent", "twice"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.config.compile(TokenLimit)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestRulesOfOneUnitMayHaveSeveralWindows(t *testing.T) {
	c := Config{Limits: parse(t, "1 tokens per hour", "1 tokens per 1h", "1 tokens per rolling 1h", "1 tokens per 1h burst 1",
		"1 input_tokens per hour", "1 requests per hour", "1 concurrent")}
	if _, err := c.compile(TokenLimit); err != nil {
		t.Error(err)
	}
}

func TestCompilingChangesNothing(t *testing.T) {
	c := Config{Limits: parse(t, "1 tokens per hour")}
	if _, err := c.compile(TokenLimit); err != nil {
		t.Fatal(err)
	}
	if c.Mode != "" || c.Timezone != "" || c.Unmetered != "" || c.Headers != "" {
		t.Errorf("a default was written into the config: %+v", c)
	}
}

func TestInstanceIDsOutliveTheRules(t *testing.T) {
	hour, day := parse(t, "1 tokens per hour"), parse(t, "9 requests per day")
	id := func(c Config) string { return instanceID(&c, "token_limit") }
	if a, b := id(Config{Limits: hour}), id(Config{Limits: day, Mode: Strict, Timezone: "Europe/Berlin"}); a != b {
		t.Errorf("an edit of the rules changes the id from %q to %q", a, b)
	}
	if got := id(Config{Name: "a", Limits: hour}); got != "a" {
		t.Errorf("a named instance has the id %q", got)
	}
	if got := id(Config{Name: "a", Share: "p", Limits: hour}); got != "p" {
		t.Errorf("a member of a pool has the id %q", got)
	}
	seen := make(map[string]bool)
	for _, c := range []Config{
		{},
		{ConsumerBased: true},
		{Key: []string{"{http.vars.a}"}},
		{Key: []string{"{http.vars.a}", "{http.vars.b}"}},
		{Key: []string{"{http.vars.b}", "{http.vars.a}"}},
	} {
		if seen[id(c)] {
			t.Errorf("key %q has the id of another", c.Key)
		}
		seen[id(c)] = true
	}
	if a, b := instanceID(&Config{}, "token_limit"), instanceID(&Config{}, "cost_limit"); a == b {
		t.Errorf("two directives have the id %q", a)
	}
}

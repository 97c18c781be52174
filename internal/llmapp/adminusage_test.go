package llmapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// send sends a body to the admin endpoint, and returns the status that Caddy answers an
// error with.
func send(t testing.TB, method, target, body string) (*httptest.ResponseRecorder, int, error) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, route := range new(Admin).Routes() {
		if route.Pattern != r.URL.Path {
			continue
		}
		w := httptest.NewRecorder()
		err := route.Handler.ServeHTTP(w, r)
		var api caddy.APIError
		if errors.As(err, &api) {
			return w, api.HTTPStatus, err
		}
		return w, w.Code, err
	}
	t.Fatalf("nobody answers %s", target)
	return nil, 0, nil
}

// rowsFrom sends a body and returns the rows of the answer.
func rowsFrom(t testing.TB, method, target, body string) (rows []usageRow) {
	t.Helper()
	w, status, err := send(t, method, target, body)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s %s: got %d, %v", method, target, status, err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || rows == nil {
		t.Fatalf("%s %s: %s (%v)", method, target, w.Body, err)
	}
	return rows
}

// byModel is a limiter of a test's that counts some models apart. Its rules count two
// units in several windows, and dollars and seconds.
type byModel struct{ instance }

func ruleOf(unit, window, models string, limit int64) RuleInfo {
	words := unit
	if window != "" {
		words += " per " + window
	}
	info := RuleInfo{Unit: unit, Window: window, Limit: limit}
	info.Store = &store.Rule{ID: words + models, Window: store.None()}
	if window != "" {
		w, err := store.Calendar(window, nil)
		if err != nil {
			panic(err)
		}
		info.Store.Window = w
	}
	if models != "" {
		words += " (" + models + ")"
		info.Models = []string{models}
	}
	info.Words = words
	return info
}

func newByModel(name string, key ...string) *byModel {
	in := &byModel{instance{name: name, key: key}}
	in.rules = []RuleInfo{
		ruleOf("tokens", "hour", "", 1000), ruleOf("tokens", "day", "", 5000), ruleOf("usd", "day", "", 2e12),
		ruleOf("audio_seconds", "day", "", 60_000), ruleOf("concurrent", "", "", 3),
		ruleOf("tokens", "day", "gpt*", 300), ruleOf("images", "day", "*", 10),
	}
	in.rules[6].PerModel = true
	return in
}

func (in *byModel) RulesOf(string) []RuleInfo {
	return append(in.rules[:6:6], in.of("known"), in.of("other"))
}

// of is the rule of one model's pictures.
func (in *byModel) of(model string) RuleInfo {
	info := in.rules[6]
	info.Model, info.Store = model, &store.Rule{ID: info.Store.ID + "=" + model, Window: info.Store.Window}
	return info
}

func (in *byModel) RulesOfModel(_, model string) []RuleInfo {
	if strings.HasPrefix(model, "gpt") {
		return in.rules[:6]
	}
	return append(in.rules[:5:5], in.of(model))
}

func (in *byModel) RuleOfID(id string) (RuleInfo, bool) {
	if model, ok := strings.CutPrefix(id, in.rules[6].Store.ID+"="); ok {
		return in.of(model), true
	}
	for _, info := range in.rules[:6] {
		if info.Store.ID == id {
			return info, true
		}
	}
	return RuleInfo{}, false
}

// mustRunBy runs a config with a byModel of that name, and one that all share.
func mustRunBy(t testing.TB, name string) *App {
	t.Helper()
	a := mustRun(t, []byte(strings.Replace(string(config(t, route("", limit("of-"+name)), "", "")), "WARN", "INFO", 1)))
	for _, in := range []Instance{newByModel(name, "application"), newByModel(name + "-shared")} {
		if err := a.Register(in); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// usedOf tells what is used, by rule and model.
func usedOf(rows []usageRow) map[string]string {
	used := make(map[string]string)
	for _, r := range rows {
		used[strings.TrimSpace(r.Rule+" "+r.Model)] = r.Used.String()
	}
	return used
}

func TestAdjustChargesTheWindowsOfAUnit(t *testing.T) {
	for i, tc := range []struct {
		name, what string
		want       map[string]string
	}{
		{"all windows", `"unit":"tokens","amount":70`, map[string]string{"tokens per hour": "70", "tokens per day": "70", "tokens per day (gpt*)": "70"}},
		{"a grant", `"unit":"tokens","amount":-70`, map[string]string{"tokens per hour": "-70", "tokens per day": "-70", "tokens per day (gpt*)": "-70"}},
		{"a number in a string", `"unit":"tokens","amount":"70"`, map[string]string{"tokens per hour": "70", "tokens per day": "70", "tokens per day (gpt*)": "70"}},
		{"one window", `"unit":"tokens","amount":70,"window":"hour"`, map[string]string{"tokens per hour": "70"}},
		{"the windows of a name", `"unit":"tokens","amount":70,"window":"day"`, map[string]string{"tokens per day": "70", "tokens per day (gpt*)": "70"}},
		{"those of a model", `"unit":"tokens","amount":70,"model":"gpt-4o"`, map[string]string{"tokens per hour": "70", "tokens per day": "70", "tokens per day (gpt*)": "70"}},
		{"those of a model in no block", `"unit":"tokens","amount":70,"model":"qwen"`, map[string]string{"tokens per hour": "70", "tokens per day": "70"}},
		{"those of a model that is counted apart", `"unit":"images","amount":3,"model":"qwen"`, map[string]string{"images per day (*) qwen": "3"}},
		{"dollars", `"unit":"usd","amount":"-0.000000000001"`, map[string]string{"usd per day": "-0.000000000001"}},
		{"seconds", `"unit":"audio_seconds","amount":1.25`, map[string]string{"audio_seconds per day": "1.250"}},
		{"null is as nothing", `"unit":"tokens","amount":70,"window":"hour","model":null`, map[string]string{"tokens per hour": "70"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprint("adjust-", i)
			mustRunBy(t, name)
			rows := rowsFrom(t, http.MethodPost, "/llm/usage/adjust", `{"instance":"`+name+`","consumer":"shop",`+tc.what+`}`)
			if got := usedOf(rows); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			log := testLog.String()
			for _, part := range []string{`"usage adjusted"`, `"instance":"` + name + `"`, `"consumer":"shop"`, `"remote":"192.0.2.1:1234"`, `"counters":` + fmt.Sprint(len(tc.want))} {
				if !strings.Contains(log, part) {
					t.Errorf("the log has no %s: %s", part, log)
				}
			}
		})
	}
}

func TestAdjustOfWhatAllShare(t *testing.T) {
	mustRunBy(t, "adjust")
	rows := rowsFrom(t, http.MethodPost, "/llm/usage/adjust", `{"instance":"adjust-shared","unit":"usd","amount":"0.50"}`)
	if len(rows) != 1 || rows[0].Consumer != "" || rows[0].Used.String() != "0.50" || rows[0].Remaining.String() != "1.50" {
		t.Errorf("got %+v", rows)
	}
}

func TestAdjustSaysWhatWasExpected(t *testing.T) {
	mustRunBy(t, "wrong")
	const at = `{"instance":"wrong","consumer":"shop",`
	long := strings.Repeat("9", 5000)
	for _, tc := range []struct {
		name, body string
		status     int
		want       []string
	}{
		{"no body", ``, 400, []string{"JSON object", "instance, consumer, unit, amount"}},
		{"no object", `[1]`, 400, []string{"JSON object"}},
		{"null", `null`, 400, []string{"JSON object"}},
		{"two objects", `{} {}`, 400, []string{"something follows"}},
		{"a huge body", `{"instance":"` + strings.Repeat("x", bodyMost) + `"}`, 400, []string{"larger than 65536 bytes"}},
		{"an unknown member", `{"instances":"wrong"}`, 400, []string{`unknown member "instances"`, "window"}},
		{"an instance that is no string", `{"instance":5}`, 400, []string{"instance: expected a string, not 5"}},
		{"no instance", `{}`, 400, []string{"instance: expected", `"of-wrong", "wrong", "wrong-shared"`}},
		{"an unknown instance", `{"instance":"nobody"}`, 404, []string{`no "nobody"`, `"of-wrong", "wrong", "wrong-shared"`}},
		{"no consumer", `{"instance":"wrong","unit":"tokens","amount":1}`, 400, []string{"consumer: expected one", "counts by application"}},
		{"a consumer of what all share", `{"instance":"wrong-shared","consumer":"shop","unit":"tokens","amount":1}`, 400, []string{"consumer:", "leave the consumer out"}},
		{"no unit", at + `"amount":1}`, 400, []string{"unit: expected one of tokens, usd, audio_seconds, concurrent, images"}},
		{"an unknown unit", at + `"unit":"token","amount":1}`, 400, []string{`not "token"`}},
		{"calls at work", at + `"unit":"concurrent","amount":1}`, 400, []string{"unit: concurrent"}},
		{"an unknown window", at + `"unit":"tokens","amount":1,"window":"week"}`, 400, []string{"window: expected one of hour, day", `not "week"`}},
		{"no model of what is counted apart", at + `"unit":"images","amount":1}`, 400, []string{"model: expected one", "each model apart"}},
		{"no amount", at + `"unit":"tokens"}`, 400, []string{"amount: expected how much"}},
		{"an amount of nothing", at + `"unit":"tokens","amount":0}`, 400, []string{"amount: 0 changes nothing"}},
		{"a fraction", at + `"unit":"tokens","amount":1.5}`, 400, []string{"amount: expected a whole number of tokens", "not 1.5"}},
		{"a word", at + `"unit":"tokens","amount":"many"}`, 400, []string{`not "many"`}},
		{"a null amount", at + `"unit":"tokens","amount":null}`, 400, []string{"amount: expected", "not null"}},
		{"more than counts exactly", at + `"unit":"tokens","amount":9007199254740992}`, 400, []string{"at most 9007199254740991"}},
		{"less than counts exactly", at + `"unit":"tokens","amount":-9007199254740992}`, 400, []string{"at most 9007199254740991"}},
		{"an endless number", at + `"unit":"tokens","amount":` + long + `}`, 400, []string{"9…"}},
		{"dollars as a number", at + `"unit":"usd","amount":12.5}`, 400, []string{`amount: expected dollars as a decimal string such as "12.50"`, "not 12.5"}},
		{"dollars finer than a picodollar", at + `"unit":"usd","amount":"0.0000000000001"}`, 400, []string{"expected dollars"}},
		{"too many dollars", at + `"unit":"usd","amount":"1000001"}`, 400, []string{"at most 1000000"}},
		{"seconds too fine", at + `"unit":"audio_seconds","amount":1.2345}`, 400, []string{"three decimals"}},
		{"seconds with an exponent", at + `"unit":"audio_seconds","amount":1e3}`, 400, []string{"expected seconds"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, status, err := send(t, http.MethodPost, "/llm/usage/adjust", tc.body)
			if err == nil || status != tc.status || w.Body.Len() > 0 {
				t.Fatalf("got %d, %v, %s; want %d", status, err, w.Body, tc.status)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not say %q", err, part)
				}
			}
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
	for _, consumer := range []string{"shop", ""} {
		rows, _ := usageOf(t, "/llm/usage?consumer="+consumer)
		for _, r := range rows {
			if r.Used.n != 0 {
				t.Errorf("something was charged: %+v", r)
			}
		}
	}
}

func TestClear(t *testing.T) {
	a := mustRunBy(t, "clear")
	in := newByModel("clear", "application")
	for _, consumer := range []string{"shop", "other"} {
		for _, info := range in.RulesOfModel("", "qwen") {
			if err := a.Counters().Adjust(t.Context(), store.Entity{Instance: "clear", Consumer: consumer}, store.Amount{Rule: info.Store, Amount: 7}); err != nil {
				t.Fatal(err)
			}
		}
	}
	shared := store.Entity{Instance: "clear-shared"}
	if err := a.Counters().Adjust(t.Context(), shared, store.Amount{Rule: in.rules[0].Store, Amount: 7}); err != nil {
		t.Fatal(err)
	}
	used := func(e store.Entity, info RuleInfo) int64 {
		t.Helper()
		results := make([]store.Result, 1)
		if err := a.Counters().Read(t.Context(), e, []*store.Rule{info.Store}, results); err != nil {
			t.Fatal(err)
		}
		return results[0].Used
	}
	rows := rowsFrom(t, http.MethodDelete, "/llm/usage?consumer=shop", "")
	for _, r := range rows {
		if r.Instance != "clear" || r.Consumer != "shop" || r.Used.n != 0 {
			t.Errorf("got %+v", r)
		}
	}
	if len(rows) == 0 {
		t.Error("no rows")
	}
	for _, info := range in.RulesOfModel("", "qwen") {
		if n := used(store.Entity{Instance: "clear", Consumer: "shop"}, info); n != 0 {
			t.Errorf("%s of the consumer: used %d", info.Words, n)
		}
		if n := used(store.Entity{Instance: "clear", Consumer: "other"}, info); n != 7 && info.Unit != "concurrent" {
			t.Errorf("%s of another: used %d", info.Words, n)
		}
	}
	if n := used(shared, in.rules[0]); n != 7 {
		t.Errorf("what all share: used %d", n)
	}
	rowsFrom(t, http.MethodDelete, "/llm/usage?instance=clear-shared", "")
	if n := used(shared, in.rules[0]); n != 0 {
		t.Errorf("what all share: used %d", n)
	}
	if log := testLog.String(); strings.Count(log, `"usage cleared"`) != 2 {
		t.Errorf("got %s", log)
	}
	for _, tc := range []struct {
		query  string
		status int
		want   string
	}{
		{"", 400, "not everybody's"},
		{"?instance=clear", 400, "consumer: expected one"},
		{"?instance=clear-shared&consumer=shop", 400, "leave the consumer out"},
		{"?instance=nobody&consumer=shop", 404, `"clear", "clear-shared"`},
		{"?consumers=shop", 400, `unknown parameter "consumers"`},
	} {
		if _, status, err := send(t, http.MethodDelete, "/llm/usage"+tc.query, ""); err == nil || status != tc.status || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %d, %v; want %d and %s", tc.query, status, err, tc.status, tc.want)
		}
	}
}

// awayCounters cannot be edited.
type awayCounters struct{ store.Counters }

var errAway = fmt.Errorf("dialing: %w", store.ErrUnavailable)

func (awayCounters) Adjust(context.Context, store.Entity, ...store.Amount) error { return errAway }
func (awayCounters) Clear(context.Context, store.Entity) error                   { return errAway }
func (awayCounters) Override(context.Context, store.Entity, string, *int64) error {
	return errAway
}

func TestEditsOfAStoreThatIsAwayAreRefused(t *testing.T) {
	a := mustRunBy(t, "away")
	rowsFromOverride(t, `{"instance":"away","consumer":"shop","rule":"tokens per hour","limit":5}`)
	counters := a.shared.counters
	a.shared.counters = awayCounters{counters}
	defer func() { a.shared.counters = counters }()
	for _, tc := range []struct{ method, target, body, want string }{
		{"POST", "/llm/usage/adjust", `{"instance":"away","consumer":"shop","unit":"tokens","amount":5}`, "nothing is adjusted"},
		{"DELETE", "/llm/usage?consumer=shop", ``, "not known"},
		{"PUT", "/llm/overrides", `{"instance":"away","consumer":"shop","rule":"tokens per hour","limit":5}`, "not known"},
		{"DELETE", "/llm/overrides", `{"instance":"away","consumer":"shop","rule":"tokens per hour"}`, "not known"},
	} {
		if _, status, err := send(t, tc.method, tc.target, tc.body); status != 503 || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %d, %v", tc.method, tc.target, status, err)
		}
	}
	if log := testLog.String(); strings.Contains(log, "adjusted") || strings.Contains(log, "cleared") || strings.Contains(log, `"limit no longer overridden"`) {
		t.Errorf("the log tells what was not done: %s", log)
	}
}

// FuzzMembers holds what operators send to be read or refused, and amounts to come back
// as they were sent.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"instance":"a","amount":1.25}`))
	f.Add([]byte(`{"amount":"12.50","consumer":null}`))
	f.Add([]byte(`{"amount":-0.001}`))
	f.Add([]byte(`{"amount":1e400000000}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseMembers(body, []string{"instance", "consumer", "amount"})
		if err != nil {
			return
		}
		for _, name := range []string{"instance", "consumer", "amount"} {
			_, _ = m.text(name)
		}
		for _, unit := range []string{"tokens", "usd", "audio_seconds"} {
			info := RuleInfo{Unit: unit}
			n, err := info.parse(m["amount"])
			if err != nil {
				continue
			}
			out, err := info.amount(n).MarshalJSON()
			if err != nil {
				t.Fatalf("%s as %s: %v", m["amount"], unit, err)
			}
			if again, err := info.parse(out); err != nil || again != n {
				t.Errorf("%s is %d %s and becomes %s, which is %d (%v)", m["amount"], n, unit, out, again, err)
			}
		}
	})
}

package llmapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// rowsFromOverride sets a limit and returns what the answer says.
func rowsFromOverride(t testing.TB, body string) overrideRow {
	t.Helper()
	w, status, err := send(t, http.MethodPut, "/llm/overrides", body)
	var row overrideRow
	if err != nil || status != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &row) != nil {
		t.Fatalf("%s: got %d, %v, %s", body, status, err, w.Body)
	}
	return row
}

// overridesOf are the limits that are listed, and where the next page is.
func overridesOf(t testing.TB, target string) (rows []string, next string) {
	t.Helper()
	w, status, err := send(t, http.MethodGet, target, "")
	var all []overrideRow
	if err != nil || status != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &all) != nil || all == nil {
		t.Fatalf("%s: got %d, %v, %s", target, status, err, w.Body)
	}
	for _, r := range all {
		configured := "gone"
		if r.Configured != nil {
			configured = r.Configured.String()
		}
		rows = append(rows, strings.Join([]string{r.Instance, r.Consumer, r.Rule, r.Model, r.Unit, r.Limit.String(), configured}, "|"))
	}
	next, _, _ = strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<"), ">")
	return rows, next
}

func TestOverrides(t *testing.T) {
	mustRunBy(t, "own")
	for _, body := range []string{
		`{"instance":"own","consumer":"shop","rule":"tokens per hour","limit":2000}`,
		`{"instance":"own","consumer":"shop","rule":"usd per day","limit":"12.50"}`,
		`{"instance":"own","consumer":"shop","rule":"concurrent","limit":0}`,
		`{"instance":"own","consumer":"shop","rule":"images per day (*)","model":"qwen","limit":20}`,
		`{"instance":"own","consumer":"a/b é","rule":"audio_seconds per day","limit":"1.5"}`,
		`{"instance":"own-shared","rule":"tokens per hour","limit":9000}`,
	} {
		rowsFromOverride(t, body)
	}
	row := rowsFromOverride(t, `{"instance":"own","consumer":"shop","rule":"tokens per hour","limit":3000}`)
	if row.Limit.String() != "3000" || row.Configured.String() != "1000" || row.Unit != "tokens" || row.Consumer != "shop" {
		t.Errorf("got %+v", row)
	}
	shop := []string{
		"own|shop|concurrent||concurrent|0|3", "own|shop|images per day (*)|qwen|images|20|10",
		"own|shop|tokens per hour||tokens|3000|1000", "own|shop|usd per day||usd|12.50|2",
	}
	odd, shared := "own|a/b é|audio_seconds per day||audio_seconds|1.500|60", "own-shared||tokens per hour||tokens|9000|1000"
	for query, want := range map[string][]string{
		"":                                      slices.Concat([]string{odd}, shop, []string{shared}),
		"?consumer=shop":                        shop,
		"?instance=own-shared":                  {shared},
		"?instance=own&consumer=nobody":         nil,
		"?instance=own&after=own/a":             append([]string{odd}, shop...),
		"?instance=own&after=own/a%2Fc":         shop,
		"?consumer=" + url.QueryEscape("a/b é"): {odd},
	} {
		if got, next := overridesOf(t, "/llm/overrides"+query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%q: got %q and %q, want %q", query, got, next, want)
		}
	}

	rows, _ := usageOf(t, "/llm/usage?instance=own&consumer=shop")
	limits := make(map[string]string)
	for _, r := range rows {
		limits[r.Rule] = fmt.Sprint(r.Limit, " ", r.Override)
	}
	for rule, want := range map[string]string{"tokens per hour": "3000 true", "tokens per day": "5000 false", "usd per day": "12.50 true", "concurrent": "0 true"} {
		if limits[rule] != want {
			t.Errorf("%s: the usage tells %q, want %q", rule, limits[rule], want)
		}
	}

	for _, remove := range []struct{ target, body string }{
		{"/llm/overrides", `{"instance":"own","consumer":"shop","rule":"tokens per hour"}`},
		{"/llm/overrides", `{"instance":"own","consumer":"shop","rule":"images per day (*)","model":"qwen"}`},
		{"/llm/overrides?instance=own&consumer=shop&rule=usd+per+day", ``},
		{"/llm/overrides?instance=own-shared&rule=tokens+per+hour", ``},
	} {
		if w, status, err := send(t, http.MethodDelete, remove.target, remove.body); err != nil || status != http.StatusNoContent || w.Body.Len() > 0 {
			t.Errorf("%+v: got %d, %v", remove, status, err)
		}
		if _, status, err := send(t, http.MethodDelete, remove.target, remove.body); err == nil || status != http.StatusNotFound {
			t.Errorf("%+v again: got %d, %v", remove, status, err)
		}
	}
	if got, _ := overridesOf(t, "/llm/overrides"); !slices.Equal(got, []string{odd, shop[0]}) {
		t.Errorf("%q is left", got)
	}
	log := testLog.String()
	for _, part := range []string{`"limit overridden"`, `"limit no longer overridden"`, `"limit":"12.50"`, `"configured":"2"`, `"rule":"usd per day"`, `"remote":"192.0.2.1:1234"`} {
		if !strings.Contains(log, part) {
			t.Errorf("the log has no %s: %s", part, log)
		}
	}
}

func TestOverridesOfRulesThatAreGone(t *testing.T) {
	a := mustRunBy(t, "gone")
	rowsFromOverride(t, `{"instance":"gone","consumer":"shop","rule":"tokens per hour","limit":7}`)
	a.mu.Lock()
	for i, in := range a.instances {
		if in, ok := in.(*byModel); ok && in.name == "gone" {
			edited := newByModel("gone", "application")
			edited.rules[0] = ruleOf("requests", "hour", "", 1)
			a.instances[i] = edited
		}
	}
	a.mu.Unlock()
	if got, _ := overridesOf(t, "/llm/overrides?instance=gone"); !slices.Equal(got, []string{"gone|shop|tokens per hour|||7|gone"}) {
		t.Errorf("got %q", got)
	}
	if _, status, err := send(t, http.MethodDelete, "/llm/overrides", `{"instance":"gone","consumer":"shop","rule":"tokens per hour"}`); err != nil || status != http.StatusNoContent {
		t.Errorf("got %d, %v", status, err)
	}
	if got, _ := overridesOf(t, "/llm/overrides?instance=gone"); len(got) != 0 {
		t.Errorf("%q is left", got)
	}
}

func TestOverridesArePaged(t *testing.T) {
	defer func(n int) { pageSize = n }(pageSize)
	mustRunBy(t, "page")
	var want []string
	for i := range 5 {
		rowsFromOverride(t, fmt.Sprintf(`{"instance":"page","consumer":"app-%d","rule":"tokens per hour","limit":%d}`, i, i))
		want = append(want, fmt.Sprintf("page|app-%d|tokens per hour||tokens|%d|1000", i, i))
	}
	for size := 1; size < 8; size++ {
		pageSize = size
		var got []string
		for next := "/llm/overrides?instance=page"; next != ""; {
			var rows []string
			if rows, next = overridesOf(t, next); len(rows) > size {
				t.Errorf("a page of %d has %d", size, len(rows))
			}
			got = append(got, rows...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d: got %q, want %q", size, got, want)
		}
	}
}

func TestOverridesSayWhatWasExpected(t *testing.T) {
	mustRunBy(t, "bad")
	const at = `{"instance":"bad","consumer":"shop",`
	for _, tc := range []struct {
		name, method, body string
		status             int
		want               string
	}{
		{"an unknown member", "PUT", at + `"unit":"tokens"}`, 400, `unknown member "unit"`},
		{"a limit to be taken away", "DELETE", at + `"rule":"tokens per hour","limit":5}`, 400, `unknown member "limit"`},
		{"an unknown instance", "PUT", `{"instance":"nobody"}`, 404, `"bad", "bad-shared"`},
		{"an unknown instance to be left", "DELETE", `{"instance":"nobody"}`, 404, `"bad", "bad-shared"`},
		{"no consumer", "PUT", `{"instance":"bad","rule":"tokens per hour","limit":5}`, 400, "consumer: expected one"},
		{"no rule", "PUT", at + `"limit":5}`, 400, `rule: expected one of "tokens per hour", "tokens per day", "usd per day"`},
		{"an unknown rule", "PUT", at + `"rule":"tokens","limit":5}`, 400, `not "tokens"`},
		{"a rule with its amount", "PUT", at + `"rule":"1000 tokens per hour","limit":5}`, 400, `not "1000 tokens per hour"`},
		{"no model of what is counted apart", "PUT", at + `"rule":"images per day (*)","limit":5}`, 400, "model: expected one"},
		{"a model that the rule does not count", "PUT", at + `"rule":"tokens per day (gpt*)","model":"qwen","limit":5}`, 400, "rule: expected one of"},
		{"no limit", "PUT", at + `"rule":"tokens per hour"}`, 400, "limit: expected an amount; 0 admits nothing"},
		{"less than nothing", "PUT", at + `"rule":"tokens per hour","limit":-1}`, 400, "limit: expected 0, which admits nothing, or more, not -1"},
		{"a word", "PUT", at + `"rule":"tokens per hour","limit":"unlimited"}`, 400, `limit: expected a whole number of tokens, at most 9007199254740991, not "unlimited"`},
		{"dollars as a number", "PUT", at + `"rule":"usd per day","limit":5}`, 400, `limit: expected dollars as a decimal string`},
		{"posting", "POST", `{}`, 405, "POST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, status, err := send(t, tc.method, "/llm/overrides", tc.body)
			if err == nil || status != tc.status || !strings.Contains(err.Error(), tc.want) || w.Body.Len() > 0 {
				t.Errorf("got %d, %v; want %d and %s", status, err, tc.status, tc.want)
			}
		})
	}
	if got, _ := overridesOf(t, "/llm/overrides"); len(got) != 0 {
		t.Errorf("%q was set", got)
	}
}

// unsynced are counters of which the disk takes nothing.
type unsynced struct {
	store.Counters
	err error
}

func (c *unsynced) Sync() error { return c.err }

func (c *unsynced) Override(ctx context.Context, e store.Entity, rule string, limit *int64) error {
	if err := c.Counters.Override(ctx, e, rule, limit); err != nil || c.err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, c.err)
}

// Who takes a limit away and hears that the disk did not take that asks again, and must
// not hear that there is none while a crash would bring it back.
func TestALimitIsUnknownOnlyOnceTheDiskHasThat(t *testing.T) {
	a := mustRunBy(t, "durable")
	c := &unsynced{Counters: a.shared.counters}
	a.shared.counters = c
	defer func() { a.shared.counters = c.Counters }()
	rowsFromOverride(t, `{"instance":"durable","consumer":"shop","rule":"tokens per hour","limit":7}`)
	c.err = errors.New("no space left on device")
	const target = "/llm/overrides?instance=durable&consumer=shop&rule=tokens+per+hour"
	for _, want := range []string{"again until the answer is 204 or 404", "not certain that there is none"} {
		if _, status, err := send(t, http.MethodDelete, target, ""); status != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), want) {
			t.Errorf("on a full disk: got %d, %v, want %q", status, err, want)
		}
	}
	if got := strings.Count(testLog.String(), `"limit no longer overridden, not confirmed by the store"`); got != 1 {
		t.Errorf("the log has it %d times: %s", got, testLog.String())
	}
	c.err = nil
	if _, status, err := send(t, http.MethodDelete, target, ""); status != http.StatusNotFound {
		t.Errorf("with room on the disk: got %d, %v", status, err)
	}
}

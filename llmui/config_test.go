package llmui

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const appsConfig = `{"@id":"apps","handler":"token_limit","name":"apps","consumer_based":true,"limits":[{"amount":"100","unit":"tokens","window":"hour"},{"amount":"20","burst":"5","unit":"requests","window":"minute"}],` +
	`"models":[{"match":["gpt-*","o3"],"limits":[{"amount":"7","unit":"tokens","window":"day"}]}],` +
	`"groups":[{"name":"premium","limits":[{"amount":"1k","unit":"tokens","window":"hour"}],"models":[{"match":["*"],"limits":[{"amount":"9","unit":"images","window":"day"}]}]}],"shadow":true}`

// edit sends an edit, and returns the status and the text of the answer.
func edit(t *testing.T, s *server, id, csrf, name string, e map[string]any) (status, text string) {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	w := do(s, visit{method: http.MethodPatch, path: s.base + "api/config/" + name, body: string(body)}, id, csrf)
	return w.Header().Get(statusField), w.Body.String()
}

func readConfig(t *testing.T, s *server, id, csrf, name string) instanceConfig {
	t.Helper()
	w := do(s, visit{path: s.base + "api/config/" + name}, id, csrf)
	var c instanceConfig
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLimitsAreEditedWhereTheyStand(t *testing.T) {
	f := &fakeAdmin{config: map[string]string{"apps": appsConfig}}
	s, id, csrf := inside(t, f)
	c := readConfig(t, s, id, csrf, "apps")
	var paths []string
	for _, r := range c.Rules {
		paths = append(paths, r.Path+"="+r.Amount+r.Group+strings.Join(r.Models, ","))
	}
	want := "limits/0=100 limits/1=20 models/0/limits/0=7gpt-*,o3 groups/0/limits/0=1kpremium groups/0/models/0/limits/0=9premium*"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("limits are %s, want %s", got, want)
	}
	f.came()
	status, text := edit(t, s, id, csrf, "apps", map[string]any{
		"etag": c.Etag,
		"set": map[string]any{
			"groups/0/models/0/limits/0": map[string]string{"amount": "90"},
			"limits/1":                   map[string]string{"amount": "40", "burst": "10"},
		},
		"remove": []string{"limits/0"},
		"add":    []any{map[string]any{"amount": "5M", "unit": "tokens", "window": "month"}},
	})
	if status != "" {
		t.Fatalf("status %s: %s", status, text)
	}
	came := f.came()
	if last := came[len(came)-1]; !strings.HasPrefix(last, "PATCH /id/apps {") {
		t.Errorf("the admin endpoint got %q", came)
	}
	var got, all any
	changed := strings.NewReplacer(
		`{"amount":"100","unit":"tokens","window":"hour"},`, "",
		`{"amount":"20","burst":"5","unit":"requests","window":"minute"}`, `{"amount":"40","burst":"10","unit":"requests","window":"minute"},{"amount":"5M","unit":"tokens","window":"month"}`,
		`{"amount":"9","unit":"images"`, `{"amount":"90","unit":"images"`).Replace(appsConfig)
	if err := json.Unmarshal([]byte(f.config["apps"]), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(changed), &all); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(all)
	if !bytes.Equal(a, b) {
		t.Errorf("the config is\n%s\nwant\n%s", a, b)
	}
}

func TestEditsThatMakeNoSenseChangeNothing(t *testing.T) {
	f := &fakeAdmin{config: map[string]string{
		"apps":  appsConfig,
		"keys":  `{"@id":"keys","handler":"api_key_auth","keys":[{"hash":"sha256:secret"}]}`,
		"proxy": `{"@id":"proxy","handler":"reverse_proxy","headers":{"request":{"set":{"Authorization":["Bearer secret"]}}}}`,
		"list":  `["secret"]`,
		"odd":   `{"handler":"token_limit","limits":["x",{"amount":5}],"models":3,"groups":[null]}`,
	}}
	s, id, csrf := inside(t, f)
	etag := readConfig(t, s, id, csrf, "apps").Etag
	set := func(path, amount, burst string) map[string]any {
		return map[string]any{"etag": etag, "set": map[string]any{path: map[string]string{"amount": amount, "burst": burst}}}
	}
	for _, tc := range []struct {
		name, id string
		edit     map[string]any
		status   string
		want     string
	}{
		{"an old page", "apps", map[string]any{"etag": `"x"`}, "412", "has changed since"},
		{"no limit there", "apps", set("limits/7", "1", ""), "400", `no limit at \"limits/7\"`},
		{"not a limit", "apps", set("handler", "1", ""), "400", "no limit at"},
		{"a burst that was not", "apps", set("limits/0", "1", "2"), "400", "with or without a burst"},
		{"no burst that was", "apps", set("limits/1", "1", ""), "400", "with or without a burst"},
		{"a limit of a group removed", "apps", map[string]any{"etag": etag, "remove": []string{"groups/0/limits/0"}}, "400", "not at the top level"},
		{"a limit of models removed", "apps", map[string]any{"etag": etag, "remove": []string{"models/0/limits/0"}}, "400", "not at the top level"},
		{"another member", "apps", map[string]any{"etag": etag, "handler": "x"}, "400", "reading the edit"},
		{"what Caddy refuses", "apps", set("limits/0", "many", ""), "400", "loading new config"},
		{"keys", "keys", map[string]any{"etag": ""}, "404", "no limiter"},
		{"a proxy", "proxy", map[string]any{"etag": ""}, "404", "no limiter"},
		{"a list", "list", map[string]any{"etag": ""}, "404", "no limiter"},
		{"nothing of that name", "none", map[string]any{"etag": ""}, "404", "nothing with the @id"},
		{"a path", "apps%2flimits", map[string]any{"etag": ""}, "400", "no name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := f.config["apps"]
			status, text := edit(t, s, id, csrf, tc.id, tc.edit)
			if status != tc.status || !strings.Contains(text, tc.want) {
				t.Errorf("status %s: %s", status, text)
			}
			if strings.Contains(text, "secret") {
				t.Errorf("tells %s", text)
			}
			if f.config["apps"] != before {
				t.Errorf("the config is %s", f.config["apps"])
			}
		})
	}
	if c := readConfig(t, s, id, csrf, "odd"); len(c.Rules) != 2 || c.Rules[1].Amount != "" {
		t.Errorf("an odd config has %+v", c.Rules)
	}
	for _, name := range []string{"keys", "proxy", "list"} {
		if w := do(s, visit{path: s.base + "api/config/" + name}, id, csrf); strings.Contains(w.Body.String(), "secret") || w.Header().Get(statusField) != "404" {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

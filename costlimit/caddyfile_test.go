package costlimit_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"

	_ "github.com/llmlimits/caddy-llm-limits" // for the order of the directives
	"github.com/llmlimits/caddy-llm-limits/costlimit"
	"github.com/llmlimits/caddy-llm-limits/internal/limit"
)

func TestUnmarshalCaddyfile(t *testing.T) {
	var h costlimit.Handler
	err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`cost_limit apps {
		consumer_based
		limit $10 per day
		limit $0.10 per rolling 1h shadow
		limit $1 per hour burst $5
		mode strict
		timezone Europe/Berlin
		headers off
		reject 402 "no money left"
		errors
		shadow
		unmetered allow
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := limit.Config{
		Name: "apps", ConsumerBased: true, Mode: limit.Strict, Timezone: "Europe/Berlin", Headers: "off",
		Reject: &limit.Reject{Status: 402, Message: "no money left"}, Errors: true, Shadow: true, Unmetered: "allow",
		Limits: []limit.Rule{
			{Amount: "$10", Unit: limit.USD, Window: "day"},
			{Amount: "$0.10", Unit: limit.USD, Window: "1h", Rolling: true, Shadow: true},
			{Amount: "$1", Unit: limit.USD, Window: "hour", Burst: "$5"},
		},
	}
	if !reflect.DeepEqual(h.Config, want) {
		t.Errorf("got  %+v\nwant %+v", h.Config, want)
	}
}

func TestUnmarshalCaddyfileRefuses(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"an amount without a dollar sign", "limit 10 per day", `amount "10" has no dollar sign`},
		{"a burst without a dollar sign", "limit $10 per day burst 20", `burst: amount "20" has no dollar sign`},
		{"a unit", "limit $10 usd per day", "no unit is said: write `limit $10 per day`"},
		{"tokens", "limit 10k tokens per day", "cost_limit counts dollars"},
		{"concurrent calls", "limit 4 concurrent", "limit 4 needs a window"},
		{"no window", "limit $10", "such as `limit $10 per day`"},
		{"nothing", "limit", "such as `limit $10 per day`"},
		{"no limit", "shadow", "needs at least one limit, such as `limit $10 per day`"},
		{"too much", "limit $1_000_001 per day", "larger than $1_000_000"},
		{"fields", "limit $1 per day\nusage_fields usage.total", "usage_fields do not tell input from output"},
		{"a rule twice", "limit $1 per day\nlimit $2 per day", "a limit of usd per day stands here twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(costlimit.Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("cost_limit {\n" + tc.line + "\n}"))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Testfile:") {
				t.Errorf("got %v, want %q and a line", err, tc.want)
			}
		})
	}
}

func TestAdaptedConfigsLoad(t *testing.T) {
	body, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`{
	admin off
	auto_https off
}
:0 {
	cost_limit budget {
		limit $10 per day
	}
	llm_cost {
		price my-model {
			input 1
			output 2
		}
	}
	respond ok
}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"@id":"budget","handler":"cost_limit","limits":[{"amount":"$10","unit":"usd","window":"day"}],"name":"budget"}`,
		`{"handler":"llm_cost","price":[{"match":"my-model","rates":{"input":"1","output":"2"}}]}`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s lacks %s", body, want)
		}
	}
	if bytes.Index(body, []byte("llm_cost")) > bytes.Index(body, []byte("cost_limit")) {
		t.Error("llm_cost stands behind cost_limit")
	}
	var c caddy.Config
	if err := json.Unmarshal(body, &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Errorf("validating: %v", err)
	}
}

func TestConfigErrorsNameTheInstance(t *testing.T) {
	for _, tc := range []struct{ name, handler, want string }{
		{"an amount", `{"handler":"cost_limit","name":"b","limits":[{"amount":"10","window":"day"}]}`, `cost_limit b: limits[0]: amount "10" has no dollar sign`},
		{"a unit", `{"handler":"cost_limit","limits":[{"amount":"10","unit":"tokens","window":"day"}]}`, `cost_limit: limits[0]: unit "tokens" is none of usd`},
		{"a policy", `{"handler":"llm_cost","unknown_model":{"policy":"guess"}}`, `llm_cost: unknown_model "guess" is none of unpriced, deny, zero, default`},
		{"a file that is not there", `{"handler":"llm_cost","prices":["/nowhere/prices.json"]}`, `/nowhere/prices.json`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c caddy.Config
			text := `{"admin":{"disabled":true},"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[` + tc.handler + `]}]}}}}}`
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

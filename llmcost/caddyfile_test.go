package llmcost

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func TestUnmarshalCaddyfile(t *testing.T) {
	var h Handler
	err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`llm_cost {
		provider azure
		prices /etc/prices.json https://prices.example/litellm.json
		prices own.json
		price gpt-4o* {
			input $2.50
			output 10
			cache_read 1.25
		}
		price my-model {
			request 0.01
		}
		alias prod-eu gpt-4o
		alias prod-us azure/gpt-4o-mini
		unknown_model default 5 15
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Handler{
		Provider: "azure",
		Prices:   []string{"/etc/prices.json", "https://prices.example/litellm.json", "own.json"},
		Own: []Price{
			{Match: "gpt-4o*", Rates: map[string]string{"input": "$2.50", "output": "10", "cache_read": "1.25"}},
			{Match: "my-model", Rates: map[string]string{"request": "0.01"}},
		},
		Alias:        map[string]string{"prod-eu": "gpt-4o", "prod-us": "azure/gpt-4o-mini"},
		UnknownModel: &UnknownModel{Policy: "default", Input: "5", Output: "15"},
	}
	if !reflect.DeepEqual(&h, &want) {
		t.Errorf("got  %+v\nwant %+v", &h, &want)
	}
}

func TestLeastOfACaddyfile(t *testing.T) {
	for _, text := range []string{"llm_cost", "llm_cost {\n}"} {
		if err := new(Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, policy := range []string{"unpriced", "deny", "zero"} {
		var h Handler
		if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("llm_cost {\nunknown_model " + policy + "\n}")); err != nil || h.UnknownModel.Policy != policy {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

func TestUnmarshalCaddyfileRefuses(t *testing.T) {
	for _, tc := range []struct{ name, args, line, want string }{
		{"a name", "mine", "", "unexpected 'mine': llm_cost has no name"},
		{"an unknown word", "", "currency EUR", "unrecognized subdirective 'currency'"},
		{"two providers", "", "provider openai\nprovider azure", "provider already specified"},
		{"a provider of two words", "", "provider azure openai", "argument"},
		{"a provider that is a model", "", "provider azure/gpt-4o", `provider "azure/gpt-4o" is not the name of one`},
		{"prices of nothing", "", "prices", "argument"},
		{"prices twice", "", "prices a.json\nprices a.json", `"a.json" stands here twice`},
		{"a price of nothing", "", "price {\ninput 1\n}", "argument"},
		{"a price without rates", "", "price m", "needs a rate"},
		{"an unknown rate", "", "price m {\nprompt 1\n}", `unknown field "prompt": there are input, output`},
		{"a rate of two words", "", "price m {\ninput 1 USD\n}", "argument"},
		{"a rate twice", "", "price m {\ninput 1\ninput 2\n}", "input already specified"},
		{"a rate that is no number", "", "price m {\ninput much\n}", `"much"`},
		{"a rate below nothing", "", "price m {\ninput -1\n}", "less than nothing"},
		{"a rate per token", "", "price m {\ninput 0.0000025\n}", "write dollars per 1M"},
		{"a price twice", "", "price m {\ninput 1\n}\nprice M {\ninput 2\n}", `"M" stands here twice`},
		{"an alias of one word", "", "alias m", "argument"},
		{"an alias twice", "", "alias m a\nalias m b", "alias 'm' already specified"},
		{"an alias twice but for case", "", "alias m a\nalias M b", "is given twice"},
		{"a policy of nothing", "", "unknown_model", "unknown_model takes"},
		{"an unknown policy", "", "unknown_model guess", `unknown_model "guess" is none of`},
		{"a default without prices", "", "unknown_model default", "unknown_model takes"},
		{"a default with one price", "", "unknown_model default 5", "unknown_model takes"},
		{"a default that is no price", "", "unknown_model default 5 x", `"x"`},
		{"prices of a policy that has none", "", "unknown_model zero 1 2", "unknown_model takes"},
		{"a policy twice", "", "unknown_model zero\nunknown_model deny", "unknown_model already specified"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("llm_cost " + tc.args + " {\n" + tc.line + "\n}"))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Testfile:") {
				t.Errorf("got %v, want %q and a line", err, tc.want)
			}
		})
	}
}

func TestPoliciesInJSON(t *testing.T) {
	for _, tc := range []struct {
		u    UnknownModel
		want string
	}{
		{UnknownModel{Policy: "zero", Input: "1"}, "unknown_model zero takes no prices"},
		{UnknownModel{Policy: "default", Input: "1"}, "needs two prices"},
		{UnknownModel{}, `unknown_model "" is none of`},
	} {
		h := Handler{UnknownModel: &tc.u}
		if _, err := h.options(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.u, err, tc.want)
		}
	}
}

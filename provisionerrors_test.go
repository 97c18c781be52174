package llmlimits

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// What shows only when a config is provisioned names the directive, the instance where that has
// a name, the word and the rule.
func TestErrorsOfProvisioningNameTheInstance(t *testing.T) {
	const limits = "limit 1 requests per day"
	for _, tc := range []struct {
		name, global, site string
		want               []string
	}{
		{"a keys file that is not there", "", "api_key_auth {\nkeys_file /nowhere/keys.json\n}", []string{"api_key_auth", "keys_file", "/nowhere/keys.json"}},
		{"a hash that is not set", "", "api_key_auth {\nkey a {env.LLM_NO_SUCH_HASH}\n}", []string{"api_key_auth", "keys[0]", `"a"`, "hash: a placeholder is unknown or empty"}},
		{"a keys file that is not set", "", "api_key_auth {\nkeys_file {env.LLM_NO_SUCH_FILE}\n}", []string{"api_key_auth", "keys_file", "LLM_NO_SUCH_FILE"}},
		{"a table of prices that is not there", "", "llm_cost {\nprices /nowhere/prices.json\n}", []string{"llm_cost", "/nowhere/prices.json"}},
		{"a provider that is nearly one", "", "llm_cost {\nprovider opena\n}", []string{"llm_cost", `"opena"`}},
		{"certificates that are not there", "store redis {\ntls {\nca /nowhere/ca.pem\n}\n}", limited("a", limits), []string{"redis", "tls", "/nowhere/ca.pem"}},
		{"a password that is not there", "store redis {\npassword {file./nowhere/password}\n}", limited("a", limits), []string{"redis", "password"}},
		{"an address that is not set", "store redis {\naddress {env.LLM_NO_SUCH_ADDRESS}\n}", limited("a", limits), []string{"redis", "address", "LLM_NO_SUCH_ADDRESS"}},
		{"two that are equal", "", limited("", limits) + "\n" + limited("", "limit 2 requests per hour"), []string{"token_limit", "give each a name"}},
		{"a pool of other rules", "", limited("", limits+"\nshare pool") + "\n" + limited("", "limit 2 requests per hour\nshare pool"), []string{"pool"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "{\n\tadmin off\n\tauto_https off\n\tlog {\n\toutput discard\n}\n\tllm {\n" + tc.global + "\n}\n}\n:0 {\n" + tc.site + "\nrespond ok\n}\n"
			body, err := adapted(text)
			if err != nil {
				t.Fatalf("found before: %v", err)
			}
			var config caddy.Config
			if err := json.Unmarshal(body, &config); err != nil {
				t.Fatal(err)
			}
			if err = caddy.Validate(&config); err == nil {
				t.Fatal("it is accepted")
			}
			for _, word := range tc.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not contain %q", err, word)
				}
			}
		})
	}
}

func limited(name, lines string) string { return "token_limit " + name + " {\n" + lines + "\n}" }

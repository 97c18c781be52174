package tokenlimit_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/tokenlimit"
)

func TestUnmarshalModelsAndGroups(t *testing.T) {
	const text = `token_limit {
		groups {
			gold a b
		}
		model qwen* glm* {
			limit 5 images per day
			limit 1k tokens per rolling 1h shadow
			per_model
			type ocr
		}
		model * {
			limit 60 audio_seconds per hour
		}
		unlisted deny
		group gold {
			limit 5 video_seconds per day
			model x {
				limit 1 requests per day
			}
		}
		group free {
			limit 1 requests per day
		}
		group_key {header.X-Tier}
		default_group free
	}`
	want := limit.Config{
		Models: []limit.ModelBlock{
			{Match: []string{"qwen*", "glm*"}, PerModel: true, Type: "ocr", Limits: []limit.Rule{
				{Amount: "5", Unit: limit.Images, Window: "day"}, {Amount: "1k", Unit: limit.Tokens, Window: "1h", Rolling: true, Shadow: true},
			}},
			{Match: []string{"*"}, Limits: []limit.Rule{{Amount: "60", Unit: limit.AudioSeconds, Window: "hour"}}},
		},
		Unlisted: "deny", GroupKey: "{header.X-Tier}", DefaultGroup: "free",
		Groups: []limit.Group{
			{
				Name: "gold", Applications: []string{"a", "b"}, Limits: []limit.Rule{{Amount: "5", Unit: limit.VideoSeconds, Window: "day"}},
				Models: []limit.ModelBlock{{Match: []string{"x"}, Limits: []limit.Rule{{Amount: "1", Unit: limit.Requests, Window: "day"}}}},
			},
			{Name: "free", Limits: []limit.Rule{{Amount: "1", Unit: limit.Requests, Window: "day"}}},
		},
	}
	var h tokenlimit.Handler
	if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h.Config, want) {
		t.Errorf("got  %+v\nwant %+v", h.Config, want)
	}
}

func TestUnmarshalModelsAndGroupsRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, lines string
		want        []string
	}{
		{"a model without a glob", "model {\nlimit 1 requests per day\n}", []string{"model needs a glob", ":2"}},
		{"models without any limit", "model a {\nper_model\n}", []string{"needs at least one limit", ":1"}},
		{"an unknown word of a model", "model a {\nlimits 5\n}", []string{"unrecognized subdirective 'limits' of model", ":3"}},
		{"a limit of a model", "model a {\nlimit 5 bananas per day\n}", []string{`unit "bananas"`, ":3"}},
		{"per_model with an argument", "model a {\nper_model yes\n}", []string{"argument", ":3"}},
		{"per_model twice", "model a {\nper_model\nper_model\n}", []string{"per_model already specified", ":4"}},
		{"type of nothing", "model a {\ntype\n}", []string{"argument", ":3"}},
		{"type twice", "model a {\ntype x\ntype x\n}", []string{"type already specified", ":4"}},
		{"a glob twice", "model a {\nlimit 1 requests per day\n}\nmodel A {\nlimit 1 requests per day\n}", []string{`model "A" stands here twice`, ":5"}},
		{"a group without a name", "group {\nlimit 1 requests per day\n}", []string{"argument", ":2"}},
		{"a group without a rule", "group g {\n}", []string{`group "g" has no limit`, ":2"}},
		{"an unknown word of a group", "group g {\nmode strict\n}", []string{"unrecognized subdirective 'mode' of group", ":3"}},
		{"a limit of a group", "group g {\nlimit 0 requests per day\n}", []string{`amount "0"`, ":3"}},
		{"a model of a group", "group g {\nmodel a {\ntype x\n}\n}", []string{`group "g" has no limit`, ":2"}},
		{"a group twice", "group g {\nlimit 1 requests per day\n}\ngroup g {\nlimit 1 requests per day\n}", []string{`the group "g" stands here twice`, ":5"}},
		{"groups of nothing", "groups {\n}", []string{"groups needs a line"}},
		{"groups with an argument", "groups g", []string{"argument", ":2"}},
		{"a group without members", "groups {\ng\n}", []string{"argument", ":3"}},
		{"members of no group", "limit 1 requests per day\ngroups {\ng a\n}", []string{"there is no group 'g'", ":4"}},
		{"unlisted of nothing", "unlisted", []string{"argument", ":2"}},
		{"unlisted twice", "unlisted allow\nunlisted allow", []string{"unlisted already specified", ":3"}},
		{"an unknown word for unlisted", "unlisted maybe", []string{`unlisted "maybe"`, "deny, allow", ":2"}},
		{"a group key that is no placeholder", "group_key tier", []string{`"tier"`, "placeholder", ":2"}},
		{"a default group that is not there", "limit 1 requests per day\ndefault_group g\ngroup h {\nlimit 1 requests per day\n}", []string{`default_group "g" is no group`, ":3"}},
		{"a type that is no word", "model a {\ntype A\nlimit 1 requests per day\n}", []string{`type "A" is not a word`, ":3"}},
		{"a limit twice", "shadow\nlimit 1 requests per day\nlimit 2 requests per day\nerrors", []string{"a limit of requests per day stands here twice", ":4"}},
		{"a limit of a model twice", "model a {\nlimit 1 requests per day\nper_model\nlimit 2 requests per day\n}\nerrors", []string{"stands here twice", ":5"}},
		{"a limit of a group twice", "group g {\nlimit 1 requests per day\nlimit 2 requests per day\n}\nerrors", []string{"stands here twice", ":4"}},
		{"a limit of a model of a group twice", "group f {\nlimit 1 requests per day\n}\ngroup g {\nmodel a {\nlimit 1 requests per day\n}\nmodel b {\nlimit 1 requests per day\nlimit 2 requests per day\n}\n}\nerrors", []string{"stands here twice", ":11"}},
		{"a key beside consumer_based", "limit 1 requests per day\nkey {http.auth.user.id}\nconsumer_based\nerrors", []string{"consumer_based and key exclude each other", ":4"}},
		{"consumer_based beside a key", "consumer_based\nlimit 1 requests per day\nkey {http.auth.user.id}\nerrors", []string{"consumer_based and key exclude each other", ":4"}},
		{"fields without tokens", "usage_fields a.b\nlimit 1 requests per day\nerrors", []string{"usage_fields needs a limit that counts tokens", ":2"}},
		{"fields beside output", "limit 1 output_tokens per day\nusage_fields a.b\nerrors", []string{"usage_fields and limits of output_tokens", ":3"}},
		{"unlisted without models", "limit 1 requests per day\nunlisted deny\nerrors", []string{"unlisted deny needs a model block", ":3"}},
		{"a default group without groups", "limit 1 requests per day\ndefault_group g\nerrors", []string{"need a group", ":3"}},
		{"a group key without groups", "limit 1 requests per day\ngroup_key {http.auth.user.id}\nerrors", []string{"need a group", ":3"}},
		{"an application in two groups", "group g {\nlimit 1 requests per day\n}\ngroup h {\nlimit 1 requests per day\n}\ngroups {\ng a\nh b a\n}\nerrors", []string{`application "a" is in group g and in group h`, ":10"}},
		{"a model behind all models", "model * {\nlimit 1 requests per day\n}\nmodel b {\nlimit 1 requests per day\n}", []string{`model "b" never counts here: it belongs to the block before that has "*"`, ":5"}},
		{"a glob behind a wider one", "limit 1 requests per day\nmodel gpt-* x {\n}\nmodel y gpt-4o* {\n}", []string{`model "gpt-4o*" never counts here`, `"gpt-*"`, ":5"}},
		{"all models behind all models", "model * {\nlimit 1 requests per day\n}\nmodel ** {\nlimit 1 requests per day\n}", []string{`model "**" never counts here`, ":5"}},
		{"a dated model behind the undated one", "model gpt-4o {\nlimit 1 requests per day\n}\nmodel gpt-4o-2024-08-06 {\nlimit 1 requests per day\n}", []string{"never counts here", "put the narrower block first", ":5"}},
		{"two spellings of a model", "model llama3:latest {\nlimit 1 requests per day\n}\nmodel llama3 {\nlimit 1 requests per day\n}", []string{`model "llama3" stands here twice`, ":5"}},
		{"a model behind all models of its group", "group g {\nlimit 1 requests per day\nmodel * {\n}\nmodel b {\n}\n}", []string{"never counts here", ":6"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(tokenlimit.Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("token_limit {\n" + tc.lines + "\n}"))
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

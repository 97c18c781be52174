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
		{"a model without a glob", "model {\nlimit 1 requests per day\n}", []string{"model needs a glob", ":4"}},
		{"models without any limit", "model a {\nper_model\n}", []string{"needs at least one limit"}},
		{"an unknown word of a model", "model a {\nlimits 5\n}", []string{"unrecognized subdirective 'limits' of model", ":3"}},
		{"a limit of a model", "model a {\nlimit 5 bananas per day\n}", []string{`unit "bananas"`, ":3"}},
		{"per_model with an argument", "model a {\nper_model yes\n}", []string{"argument", ":3"}},
		{"per_model twice", "model a {\nper_model\nper_model\n}", []string{"per_model already specified", ":4"}},
		{"type of nothing", "model a {\ntype\n}", []string{"argument", ":3"}},
		{"type twice", "model a {\ntype x\ntype x\n}", []string{"type already specified", ":4"}},
		{"a glob twice", "model a {\nlimit 1 requests per day\n}\nmodel A {\nlimit 1 requests per day\n}", []string{`model "A" stands here twice`, "models[1]"}},
		{"a group without a name", "group {\nlimit 1 requests per day\n}", []string{"argument", ":2"}},
		{"a group without a rule", "group g {\n}", []string{`group "g" has no limit`, ":3"}},
		{"an unknown word of a group", "group g {\nmode strict\n}", []string{"unrecognized subdirective 'mode' of group", ":3"}},
		{"a limit of a group", "group g {\nlimit 0 requests per day\n}", []string{`amount "0"`, ":3"}},
		{"a model of a group", "group g {\nmodel a {\ntype x\n}\n}", []string{`group "g" has no limit`}},
		{"a group twice", "group g {\nlimit 1 requests per day\n}\ngroup g {\nlimit 1 requests per day\n}", []string{`the group "g" stands here twice`, ":7"}},
		{"groups of nothing", "groups {\n}", []string{"groups needs a line"}},
		{"groups with an argument", "groups g", []string{"argument", ":2"}},
		{"a group without members", "groups {\ng\n}", []string{"argument", ":3"}},
		{"members of no group", "limit 1 requests per day\ngroups {\ng a\n}", []string{"there is no group 'g'", "line 4"}},
		{"unlisted of nothing", "unlisted", []string{"argument", ":2"}},
		{"unlisted twice", "unlisted allow\nunlisted allow", []string{"unlisted already specified", ":3"}},
		{"an unknown word for unlisted", "unlisted maybe", []string{`unlisted "maybe"`, "deny, allow", ":2"}},
		{"a group key that is no placeholder", "group_key tier", []string{`"tier"`, "placeholder", ":2"}},
		{"a default group that is not there", "limit 1 requests per day\ndefault_group g\ngroup h {\nlimit 1 requests per day\n}", []string{`default_group "g" is no group`}},
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

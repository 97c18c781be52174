package limit

import (
	"strings"
	"testing"
)

func TestWhatNothingLimitsIsToldOf(t *testing.T) {
	block := []ModelBlock{{Match: []string{"qwen*"}, Limits: oneOf10}}
	all := []ModelBlock{{Match: []string{"qwen*", "*"}, Limits: oneOf10}}
	seconds := []ModelBlock{{Match: []string{"whisper*"}, Limits: parse(t, "60 audio_seconds per hour")}}
	requests, reports := parse(t, "60 requests per minute"), parse(t, "10 tokens per day shadow")
	for _, tc := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"limits alone", Config{Limits: oneOf10}, nil},
		{"blocks beside limits", Config{Limits: oneOf10, Models: block}, nil},
		{"blocks alone", Config{Models: block}, []string{"models in no model block"}},
		{"a block of all models", Config{Models: all}, nil},
		{"a block of all models without limits", Config{Models: append(block, ModelBlock{Match: []string{"*"}})}, []string{"models in no model block"}},
		{"the operator said so", Config{Models: block, Unlisted: "allow"}, nil},
		{"the others are denied", Config{Models: block, Unlisted: "deny"}, nil},
		{"groups alone", Config{Groups: []Group{{Name: "g", Limits: oneOf10}}}, []string{"callers in no group"}},
		{"groups with a default", Config{Groups: []Group{{Name: "g", Limits: oneOf10}}, DefaultGroup: "g"}, nil},
		{"blocks of a group", Config{Limits: oneOf10, Groups: []Group{{Name: "g", Models: block}}}, []string{"members of group g"}},
		{"blocks beside limits of another unit", Config{Limits: requests, Models: block}, []string{"models in no model block are not limited in tokens: say"}},
		{"blocks of two units beside limits of neither", Config{Limits: requests, Models: append(seconds, block...)}, []string{"not limited in audio_seconds, tokens: say"}},
		{"blocks of a group beside limits of another unit", Config{Limits: oneOf10, Groups: []Group{{Name: "g", Limits: requests, Models: block}}}, []string{"members of group g are not limited in tokens in models of no model block"}},
		{"blocks of a part of what is limited beside them", Config{Limits: oneOf10, Models: []ModelBlock{{Match: []string{"a"}, Limits: parse(t, "5 output_tokens per day")}}}, nil},
		{"blocks beside a part of what they limit", Config{Limits: parse(t, "5 output_tokens per day"), Models: block}, []string{"not limited in tokens: say"}},
		{"blocks beside limits that only report", Config{Limits: reports, Models: block}, []string{"models in no model block are not limited: say"}},
		{"blocks that only report", Config{Limits: requests, Models: []ModelBlock{{Match: []string{"a"}, Limits: reports}}}, nil},
		{"a block of all models that only reports", Config{Models: append(block, ModelBlock{Match: []string{"*"}, Limits: reports})}, []string{"models in no model block are not limited: say"}},
		{"a block of all models in another unit", Config{Models: append(seconds, ModelBlock{Match: []string{"**"}, Limits: oneOf10})}, nil},
		{"all only reports", Config{Shadow: true, Limits: requests, Models: block}, []string{"not limited in tokens"}},
		{"all only reports, and is limited", Config{Shadow: true, Limits: oneOf10, Models: block}, nil},
		{"groups beside limits that only report", Config{Limits: reports, Groups: []Group{{Name: "g", Limits: oneOf10}}}, []string{"callers in no group"}},
		{"limits that only report alone", Config{Limits: reports}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := tc.config.compile(TokenLimit)
			if err != nil {
				t.Fatal(err)
			}
			got := tc.config.open(p)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("got %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}

func TestWhatClientsCanMakeUpIsToldOf(t *testing.T) {
	perModel := []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}
	header, user := []string{"{http.request.header.X-Team}"}, []string{"{http.auth.user.id}"}
	for _, tc := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"a consumer's own", Config{ConsumerBased: true, Models: perModel}, nil},
		{"one for all", Config{Models: perModel}, nil},
		{"a user", Config{Key: user, Models: perModel}, nil},
		{"a header", Config{Key: header, Limits: oneOf10}, []string{"clients can make up values of the key {http.request.header.X-Team}; each counts apart, and new ones are refused"}},
		{"a header, for each model", Config{Key: header, Models: perModel}, []string{"each counts apart, by per_model in up to 100 models of its own, and new ones are refused"}},
		{"a header, for each model of a group", Config{Key: header, Limits: oneOf10, Groups: []Group{{Name: "g", Models: perModel}}}, []string{"by per_model in up to 100 models"}},
		{"a user and a part of the path", Config{Key: append(user, "{http.request.uri.path.1}"), Models: perModel}, []string{"by per_model"}},
		{"a query", Config{Key: []string{"{http.request.uri.query.team}"}, Models: perModel}, []string{"by per_model"}},
		{"a variable that anything may set", Config{Key: []string{"{http.vars.team}"}, Models: perModel}, []string{"by per_model"}},
		{"a group by a header", Config{ConsumerBased: true, GroupKey: header[0], Groups: []Group{{Name: "g", Limits: oneOf10}}}, []string{"clients can choose their group by the group_key {http.request.header.X-Team}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := newTestLimiter(t, tc.config).made()
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("got %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}

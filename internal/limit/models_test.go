package limit

import (
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
)

// oneOf10 is a limit that any block may have.
var oneOf10 = []Rule{{Amount: "10", Unit: Tokens, Window: "day"}}

func TestAModelBelongsToTheFirstBlockThatNamesIt(t *testing.T) {
	l := newTestLimiter(t, Config{Models: []ModelBlock{
		{Match: []string{"gpt-4o", "GPT-4.1*"}, Limits: oneOf10},
		{Match: []string{"gpt-*", "claude-sonnet-4-5"}, Limits: oneOf10},
		{Match: []string{"anthropic.claude*", "*/llama-?"}, Limits: oneOf10},
		{Match: []string{"gemini*"}, Limits: oneOf10},
	}})
	for _, tc := range []struct {
		model, exact string
		block        int // -1 is none
	}{
		{"gpt-4o", "gpt-4o", 0},
		{"GPT-4O", "gpt-4o", 0},
		{"gpt-4o-2024-08-06", "gpt-4o", 0},
		{"openai/gpt-4o", "gpt-4o", 0},
		{"gpt-4.1-mini", "", 0},
		{"gpt-4o-mini", "", 1},
		{"azure/gpt-5", "", 1},
		{"claude-sonnet-4-5-20250929", "claude-sonnet-4-5", 1},
		{"claude-sonnet-4-5@20250929", "claude-sonnet-4-5", 1},
		{"us.anthropic.claude-sonnet-4-20250514-v1:0", "", 2},
		{"arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-x", "", 2},
		{"models/gemini-2.5-pro", "", 3},
		{"publishers/google/models/gemini-2.5-pro", "", 3},
		{"o3", "", -1},
		{"ft:gpt-4o:org", "", -1},
	} {
		b, exact := l.blockOf(modelname.Forms(tc.model))
		at := -1
		for i := range l.blocks {
			if l.blocks[i] == b {
				at = i
			}
		}
		if at != tc.block || exact != tc.exact {
			t.Errorf("%s: got block %d and %q, want %d and %q", tc.model, at, exact, tc.block, tc.exact)
		}
	}
}

// A counter must be found again whatever is edited but the globs of its block, and must
// be no other block's.
func TestABlockIsItsGlobs(t *testing.T) {
	id := func(mb ModelBlock, group string) string {
		c := Config{Models: []ModelBlock{mb}}
		if group != "" {
			c = Config{Groups: []Group{{Name: group, Models: c.Models}}}
		}
		p, err := c.compile(TokenLimit)
		if err != nil {
			t.Fatal(err)
		}
		if group != "" {
			return p.groups[0].blocks[0].rules[0].store.ID
		}
		return p.base.blocks[0].rules[0].store.ID
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = "model-" + strings.Repeat("x", i+1) + "*"
	}
	same := id(ModelBlock{Match: []string{"a*", "b"}, Limits: oneOf10}, "")
	for name, got := range map[string]string{
		"another order":  id(ModelBlock{Match: []string{"b", "a*"}, Limits: oneOf10}, ""),
		"another case":   id(ModelBlock{Match: []string{"A*", "B"}, Limits: oneOf10}, ""),
		"another amount": id(ModelBlock{Match: []string{"a*", "b"}, Limits: []Rule{{Amount: "9", Unit: Tokens, Window: "day", Shadow: true}}}, ""),
		"another type":   id(ModelBlock{Match: []string{"a*", "b"}, Limits: oneOf10, Type: "video"}, ""),
		"a group":        id(ModelBlock{Match: []string{"a*", "b"}, Limits: oneOf10}, "gold"),
	} {
		if got != same {
			t.Errorf("%s: got %q, want %q", name, got, same)
		}
	}
	seen := map[string]string{same: "a* b"}
	for _, match := range [][]string{{"a*"}, {"a*b"}, {"a*,b"}, {"a*%20b"}, {"a*]"}, many, many[1:]} {
		got := id(ModelBlock{Match: match, Limits: oneOf10}, "")
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %s have one counter, %q", match, other, got)
		}
		if len(got) > 200 {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		seen[got] = strings.Join(match, " ")
	}
}

func TestOwnCountersAreNobodyElses(t *testing.T) {
	l := newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"a*"}, Limits: oneOf10, PerModel: true}, {Match: []string{"b*"}, Limits: oneOf10}}})
	b := l.blocks[0]
	ids := map[string]bool{b.rules[0].store.ID: true, l.blocks[1].rules[0].store.ID: true}
	for _, s := range []slot{{model: "a"}, {model: "other"}, {other: true}, {model: "~"}, {model: "a] x"}, {model: ""}} {
		ru := b.rulesOf(s)[0]
		if ids[ru.store.ID] {
			t.Errorf("%+v has the counter of another: %q", s, ru.store.ID)
		}
		ids[ru.store.ID] = true
		if ru != b.rulesOf(s)[0] || ru.words != "tokens per day (a*)" {
			t.Errorf("%+v: got %+v", s, ru)
		}
	}
}

func TestRulesOfModelsThatWereNotUsedAreForgotten(t *testing.T) {
	l := newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}})
	b := l.blocks[0]
	for i := range 5 * ownMost {
		b.rulesOf(slot{model: strings.Repeat("m", i%50) + string(rune('a'+i%26)) + strings.Repeat("n", i/50)})
	}
	if n := len(b.own.young) + len(b.own.old); n > 2*ownMost {
		t.Errorf("%d models are kept", n)
	}
}

func TestModelsAndGroupsAreRefused(t *testing.T) {
	block := func(match ...string) ModelBlock { return ModelBlock{Match: match, Limits: oneOf10} }
	for _, tc := range []struct {
		name   string
		config Config
		want   string
	}{
		{"a block without a glob", Config{Models: []ModelBlock{{Limits: oneOf10}}}, "models[0]: model needs a glob"},
		{"blocks without any limit", Config{Models: []ModelBlock{{Match: []string{"a"}}}}, "needs at least one limit, such as"},
		{"a limit that is wrong", Config{Models: []ModelBlock{block("a"), {Match: []string{"b"}, Limits: []Rule{{Amount: "0", Unit: Tokens, Window: "day"}}}}}, `models[1]: limits[0]: amount "0" must be greater than zero`},
		{"a limit twice", Config{Models: []ModelBlock{{Match: []string{"b"}, Limits: append(oneOf10, oneOf10...)}}}, "models[0]: limits[1]: a limit of tokens per day stands here twice"},
		{"a glob twice", Config{Models: []ModelBlock{block("a*"), block("b", "A*")}}, `models[1]: model "A*" stands here twice`},
		{"an empty glob", Config{Models: []ModelBlock{block("")}}, `model "" is not a name or a glob`},
		{"a glob with a quote", Config{Models: []ModelBlock{block(`a"b`)}}, "is not a name or a glob"},
		{"a glob of other letters", Config{Models: []ModelBlock{block("ä*")}}, "is not a name or a glob"},
		{"a type of two words", Config{Models: []ModelBlock{{Match: []string{"a"}, Limits: oneOf10, Type: "a b"}}}, `type "a b" is not a word`},
		{"dollars among tokens", Config{Models: []ModelBlock{{Match: []string{"a"}, Limits: []Rule{{Amount: "$1", Unit: USD, Window: "day"}}}}}, `unit "usd" is none of`},
		{"an unknown word for unlisted", Config{Limits: oneOf10, Unlisted: "no"}, `unlisted "no" is none of deny, allow`},
		{"unlisted without blocks", Config{Limits: oneOf10, Unlisted: "deny"}, "unlisted deny needs a model block"},
		{"a group without a name", Config{Groups: []Group{{Limits: oneOf10}}}, "groups[0]: a group needs a name"},
		{"a group without rules", Config{Limits: oneOf10, Groups: []Group{{Name: "g"}}}, `groups[0]: group "g" has no limit`},
		{"a group twice", Config{Groups: []Group{{Name: "g", Limits: oneOf10}, {Name: "g", Limits: oneOf10}}}, `groups[1]: the group "g" stands here twice`},
		{"a group like a path", Config{Groups: []Group{{Name: "/g", Limits: oneOf10}}}, `group "/g" must not start with / or @`},
		{"a limit of a group", Config{Groups: []Group{{Name: "g", Limits: []Rule{{Amount: "x", Unit: Tokens, Window: "day"}}}}}, `group g: limits[0]: amount "x"`},
		{"blocks of a group without any limit", Config{Limits: oneOf10, Groups: []Group{{Name: "g", Models: []ModelBlock{{Match: []string{"a"}}}}}}, `groups[0]: group "g" has no limit`},
		{"an application in two groups", Config{Groups: []Group{{Name: "g", Limits: oneOf10, Applications: []string{"a"}}, {Name: "h", Limits: oneOf10, Applications: []string{"a"}}}}, `application "a" is in group g and in group h`},
		{"an application without a name", Config{Groups: []Group{{Name: "g", Limits: oneOf10, Applications: []string{""}}}}, "group g: an application has no name"},
		{"a default group that is not there", Config{Groups: []Group{{Name: "g", Limits: oneOf10}}, DefaultGroup: "h"}, `default_group "h" is no group of this limiter`},
		{"a default group without groups", Config{Limits: oneOf10, DefaultGroup: "h"}, "group_key and default_group need a group"},
		{"a group key that is no placeholder", Config{Groups: []Group{{Name: "g", Limits: oneOf10}}, GroupKey: "tier"}, `group_key "tier" is not a placeholder`},
		{"seconds beyond what is exact", Config{Limits: []Rule{{Amount: "10_000_000M", Unit: AudioSeconds, Window: "day"}}}, `amount "10_000_000M" is larger than 9007199254740`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.config.compile(TokenLimit)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestWhatNothingLimitsIsToldOf(t *testing.T) {
	block := []ModelBlock{{Match: []string{"qwen*"}, Limits: oneOf10}}
	all := []ModelBlock{{Match: []string{"qwen*", "*"}, Limits: oneOf10}}
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

func TestSecondsAreToldInSeconds(t *testing.T) {
	for n, want := range map[int64][3]string{
		0: {"0", "0", "0"}, 999: {"0", "0.999", "0"}, 1500: {"1", "1.5", "1"}, 60_000: {"60", "60", "60"}, -1050: {"-1", "-1.05", "-1"},
	} {
		if got := [3]string{AudioSeconds.number(n), VideoSeconds.words(n), AudioSeconds.field(n)}; got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

package limit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/store"
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
		{"a glob twice in a block", Config{Models: []ModelBlock{block("b", "a*", "A*")}}, `models[0]: model "A*" stands here twice`},
		{"a block behind that of all models", Config{Models: []ModelBlock{block("b", "*"), block("a")}}, `models[1]: model "a" never counts here: it belongs to the block before that has "*"`},
		{"a block behind a wider one, in a group", Config{Groups: []Group{{Name: "g", Models: []ModelBlock{block("a*"), block("b"), block("c", "a*b")}}}}, `group g: models[2]: model "a*b" never counts here`},
		{"a block behind a name that its own is a way to write", Config{Models: []ModelBlock{block("gpt-4o"), block("openai/gpt-4o")}}, `model "openai/gpt-4o" never counts here`},
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

// What clients read of a block names a few of many globs, and how many more there are.
func TestManyGlobsAreNamedInShort(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("organization-%03d/%s*", i, strings.Repeat("m", 50))
	}
	for _, tc := range []struct {
		name  string
		match []string
		want  string
	}{
		{"one", []string{"Qwen*"}, "tokens per day (Qwen*)"},
		{"a few", []string{"qwen*", "glm*"}, "tokens per day (qwen* glm*)"},
		{"many", many, "tokens per day (" + many[0] + " and 99 more)"},
		{"one that is long", []string{strings.Repeat("g", maxGlob), "h"}, "tokens per day (" + strings.Repeat("g", maxGlob) + " and 1 more)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, Config{ConsumerBased: true, Models: []ModelBlock{{Match: tc.match, Limits: oneOf10, PerModel: true}}})
			ru := l.blocks[0].rulesOf(slot{model: "m"})[0]
			if policy := strconv.Quote(tc.want) + ";q=10;w=86400"; ru.fixed.policy != policy || ru.fixed.prefix != strconv.Quote(tc.want)+";r=" {
				t.Errorf("headers say %q and %q, want %q", ru.fixed.policy, ru.fixed.prefix, policy)
			}
			if ru.words != "tokens per day ("+strings.Join(tc.match, " ")+")" {
				t.Errorf("operators read %q", ru.words)
			}
			v := violation{rule: ru, result: store.Result{Limit: 10, Used: 10}, public: true}
			if want := "limit of " + tc.want + " reached: limit 10, used 10"; v.message(noon) != want {
				t.Errorf("got %q, want %q", v.message(noon), want)
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

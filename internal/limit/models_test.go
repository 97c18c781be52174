package limit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

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
			if policy := strconv.Quote(tc.want) + ";q=10;w=86400"; ru.fixed.policy[0] != policy || ru.fixed.prefix != strconv.Quote(tc.want)+";r=" {
				t.Errorf("headers say %q and %q, want %q", ru.fixed.policy[0], ru.fixed.prefix, policy)
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

// A model that came too late is known for a while, and no more of them than have counters.
func TestModelsThatShareAreRemembered(t *testing.T) {
	c := new(acquaintance)
	reset := noon.Add(24 * time.Hour)
	check := func(model string, now time.Time, own, ok bool) {
		t.Helper()
		if gotOwn, gotOK := c.knows(model, now); gotOwn != own || gotOK != ok {
			t.Errorf("%s: own %t, known %t, want %t and %t", model, gotOwn, gotOK, own, ok)
		}
	}
	c.meet("mine", reset)
	check("late", noon, false, false)
	c.miss("late", noon, reset)
	check("late", noon, false, true)
	check("later", noon, false, false) // another replica may have met it
	check("mine", noon, true, true)
	check("late", noon.Add(missFor), false, false) // a place may be free again
	c.miss("late", reset.Add(-time.Second), reset)
	check("late", reset, false, false) // all begin anew
	for i := range 3 * modelsMost {
		c.miss(strconv.Itoa(i), noon, reset)
		c.miss(strconv.Itoa(i), noon, reset)
	}
	if len(c.shared) != modelsMost {
		t.Errorf("%d are remembered", len(c.shared))
	}
	check(strconv.Itoa(3*modelsMost-1), noon, false, true)
	check("0", noon, false, false)
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

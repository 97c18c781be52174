package llmlimits

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// texts are tokens as a Caddyfile has them, each line ending with a semicolon.
func texts(tokens caddyfile.Segment) string {
	var b strings.Builder
	for i, t := range tokens {
		switch {
		case i == 0:
		case t.Line != tokens[i-1].Line:
			b.WriteString("; ")
		default:
			b.WriteByte(' ')
		}
		b.WriteString(t.Text)
	}
	return b.String()
}

func block(t testing.TB, text string) caddyfile.Segment {
	t.Helper()
	d := caddyfile.NewTestDispenser(text)
	d.Next()
	return d.NextSegment()
}

func TestLinesGoToTheLimitersTheyAreFor(t *testing.T) {
	for _, tc := range []struct{ name, lines, tokens, cost string }{
		{"by the dollar sign", "limit 1k tokens per hour\nlimit $1 per day\nlimit 2 concurrent", "limit 1k tokens per hour; limit 2 concurrent", "limit $1 per day"},
		{
			"others in their place in both", "limit 1k tokens per hour\nmode strict\nlimit $1 per day\ngroups {\ngold a b\n}",
			"limit 1k tokens per hour; mode strict; groups {; gold a b; }", "mode strict; limit $1 per day; groups {; gold a b; }",
		},
		{
			"models to both, for they belong to the first block", "model gpt-* {\nlimit $1 per day\nper_model\n}\nmodel qwen* glm* {\nlimit $2 per day\nlimit 1k tokens per day\ntype text\n}",
			"model gpt-* {; per_model; }; model qwen* glm* {; limit 1k tokens per day; type text; }",
			"model gpt-* {; limit $1 per day; per_model; }; model qwen* glm* {; limit $2 per day; type text; }",
		},
		{
			"groups to both", "limit 1k tokens per day\nlimit $1 per day\ngroup gold {\nlimit $5 per day\nmodel gpt-* {\nlimit 5k tokens per day\n}\n}",
			"limit 1k tokens per day; group gold {; model gpt-* {; limit 5k tokens per day; }; }",
			"limit $1 per day; group gold {; limit $5 per day; model gpt-* {; }; }",
		},
		{
			"what other models are, to both", "limit $1 per day\nunlisted deny\nmodel a {\nlimit 5k tokens per day\n}",
			"unlisted deny; model a {; limit 5k tokens per day; }", "limit $1 per day; unlisted deny; model a {; }",
		},
		{"what other models are, to one that complains", "limit $1 per day\nunlisted deny", "unlisted deny", "limit $1 per day; unlisted deny"},
		{"a model block without limits", "limit $1 per day\nmodel a {\nper_model\n}", "model a {; per_model; }", "limit $1 per day; model a {; per_model; }"},
		{"fields to tokens", "usage_fields a.b\nlimit 1k tokens per day\nlimit $1 per day", "usage_fields a.b; limit 1k tokens per day", "limit $1 per day"},
		{"empty blocks", "limit $1 per day\nmodel a {\n}", "model a", "limit $1 per day; model a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ls, err := sortLines(block(t, "consumer {\n"+tc.lines+"\n}"), consumer)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range map[kind]string{tokens: tc.tokens, cost: tc.cost} {
				want = strings.Replace("consumer {; "+want+"; }", "; ; ", "; ", 1)
				if got := texts(ls[k].tokens); got != want {
					t.Errorf("%s gets\n%s\nwant\n%s", k.handler, got, want)
				}
			}
		})
	}
}

func TestGroupsThatWouldBeWithoutLimitsAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, lines, want string }{
		{"of dollars", "limit $1 per day\ngroup gold {\nlimit 5k tokens per day\n}", "group gold has no limit of dollars"},
		{"of tokens", "limit 1k tokens per day\ngroup gold {\nlimit $5 per day\n}", "group gold has no limit of requests or tokens"},
		{"where another group has one", "group a {\nlimit $1 per day\n}\ngroup b {\nlimit 1 requests per day\n}", "group a has no limit of requests or tokens"},
		{"of one kind that nobody has", "limit 1k tokens per day\ngroup gold {\nlimit 5k tokens per day\n}", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := sortLines(block(t, "consumer {\n"+tc.lines+"\n}"), consumer)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{"limit $1 per day\nmodel a {\nlimit 1 tokens per day\n}", "{\n}", "group x {\n", "limit", "limit $1 per day {\n}\n}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		toks, err := caddyfile.Tokenize([]byte("consumer {\n"+lines+"\n}\n"), "Caddyfile")
		if err != nil {
			return
		}
		d := caddyfile.NewDispenser(toks)
		d.Next()
		seg := d.NextSegment()
		ls, err := sortLines(seg, consumer)
		if err != nil {
			return
		}
		for k, l := range ls {
			if len(l.tokens) > len(seg) {
				t.Errorf("%s gets more than there is", k.handler)
			}
		}
	})
}

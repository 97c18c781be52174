package metrics

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFamily(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"gpt-5", "gpt-5"},
		{"GPT-5-2025-08-07", "gpt-5"},
		{"gpt-4o-mini-2024-07-18", "gpt-4o-mini"},
		{"openai/gpt-4.1", "gpt-4.1"},
		{"models/gemini-2.5-flash", "gemini-2.5-flash"},
		{"publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"},
		{"claude-sonnet-4-20250514", "claude-sonnet-4"},
		{"claude-sonnet-4@20250514", "claude-sonnet-4"},
		{"us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"},
		{"anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"},
		{"amazon.nova-pro-v1:0", "nova-pro"},
		{"ft:gpt-4o-2024-08-06:my-org:custom:9abc1234", "ft:gpt-4o"},
		{"llama3.2:3b", "llama3.2:3b"},
		{"accounts/fireworks/models/deepseek-v3p1", "deepseek-v3p1"},
		{"mixtral-8x7b-32768", "mixtral-8x7b-32768"},
		{"gpt-4-0613", "gpt-4-0613"},
		{"-2025-08-07", "-2025-08-07"},
		{"", Other},
		{"models/", Other},
		{"sk-live-1234", Other},
		{"4fe8b0d3a9c14e7f9b1d2c3a4b5c6d7e", Other},
		{"a model", Other},
		{"gpt-5\n", Other},
		{"gpt-\xff", Other},
		{"\u6a21\u578b", Other},
		{strings.Repeat("ab-", 30), Other},
		{strings.Repeat("a/", 100) + "x", Other},
		{"arn:aws:bedrock:us-east-1::foundation-model/a.b-c", "a.b-c"},
	} {
		if got := Family(tt.name); got != tt.want {
			t.Errorf("Family(%q) is %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzFamily(f *testing.F) {
	for _, s := range []string{"gpt-5-2025-08-07", "us.anthropic.claude-3-v1:0", "ft:a:b", "a@1", "-v1:0", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := Family(name)
		if got == "" || len(got) > 64 || !utf8.ValidString(got) {
			t.Errorf("Family(%q) is %q", name, got)
		}
		if got != Other && !presentable(got) {
			t.Errorf("Family(%q) is %q, which is not fit for a label", name, got)
		}
	})
}

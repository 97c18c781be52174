package modelname

import (
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNormal(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"gpt-4o", "gpt-4o"},
		{"GPT-4o", "gpt-4o"},
		{" gpt-4o ", "gpt-4o"},
		{"gpt-4o-2024-08-06", "gpt-4o"},
		{"gpt-4-0613", "gpt-4-0613"}, // four digits are another model
		{"claude-sonnet-4-5-20250929", "claude-sonnet-4-5"},
		{"claude-sonnet-4-5@20250929", "claude-sonnet-4-5"},
		{"claude-sonnet-4-5@default", "claude-sonnet-4-5"},
		{"models/gemini-2.5-pro", "gemini-2.5-pro"},
		{"publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"},
		{"projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"},
		{"openai/gpt-4o-2024-08-06", "gpt-4o"},
		{"openrouter/qwen/qwen-max:nitro", "qwen-max"},
		{"us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"},
		{"bedrock/global.anthropic.claude-sonnet-4-5-20250929", "claude-sonnet-4-5"},
		{"arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova-lite-v1:0", "nova-lite"},
		{"arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-lite-v1:0", "nova-lite"},
		{"arn:aws:bedrock:us-east-1:1:application-inference-profile/x1", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x1"},
		{"qwen%2Fqwen-max", "qwen-max"},
		{"llama3:latest", "llama3"},
		{"registry.ollama.ai/library/llama3:latest", "llama3"},
		{"llama3:8b", "llama3:8b"}, // another model
		{"gpt-4o:nitro:online", "gpt-4o"},
		{"openai/gpt-4o-2024-08-06:free:online", "gpt-4o"},
		{"openai/gpt-4o@preset/x", "gpt-4o"},
		{"openai/gpt-4o:nitro@preset/x:y", "gpt-4o"},
		{"@preset/x", "x"},
		{":latest", ":latest"},
		{"anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"},
		{"anthropic.claude-3-haiku-20240307-v1:0:48k", "claude-3-haiku"},
		{"openai.gpt-oss-120b-1:0", "gpt-oss-120b"},
		{"cohere.embed-english-v3", "embed-english-v3"},
		{"mistral.", "mistral."},
		{"llama3-v1:0", "llama3-v1:0"}, // of no vendor of Bedrock
		{"a/", "a/"},
		{"-2024-08-06", "-2024-08-06"},
		{"", ""},
	} {
		if got := Normal(tc.name); got != tc.want {
			t.Errorf("Normal(%q) = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestFormsAreTheNameAsSentAndMoreAndMoreBare(t *testing.T) {
	want := []string{
		"bedrock/us.anthropic.claude-x-20250101", "us.anthropic.claude-x-20250101",
		"anthropic.claude-x-20250101", "claude-x-20250101",
		"bedrock/us.anthropic.claude-x", "us.anthropic.claude-x", "anthropic.claude-x", "claude-x",
	}
	if got := Forms("Bedrock/us.anthropic.Claude-X-20250101"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGlobs(t *testing.T) {
	for _, tc := range []struct {
		glob, name string
		want       bool
	}{
		{"gpt-4o", "gpt-4o", true},
		{"gpt-4o", "gpt-4o-mini", false},
		{"GPT-*", "gpt-4o", true},
		{"*", "", true},
		{"*", "a/b", true},
		{"qwen*", "qwen/qwen-max", true},
		{"*-mini", "gpt-4o-mini", true},
		{"a*b*c", "a.b.c", true},
		{"a*b*c", "a.c.b", false},
		{"ab*ba", "aba", false}, // no character is taken twice
		{"a**c", "ac", true},
	} {
		if got := NewGlob(tc.glob).Match(tc.name); got != tc.want {
			t.Errorf("%q matches %q: %t, want %t", tc.glob, tc.name, got, tc.want)
		}
	}
	if !NewGlob("*").All() || !NewGlob("**").All() || NewGlob("").All() || NewGlob("a*").All() {
		t.Error("stars alone, and nothing else, take all names")
	}
	if g := NewGlob("A*b"); g.String() != "a*b" || g.Exact() || g.Literals() != 2 || !NewGlob("a").Exact() {
		t.Errorf("got %q of %d", g, g.Literals())
	}
}

func TestNormalNamesAreAmongTheForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`(models/|us\.|openai/|publishers/x/models/)?[A-Za-z0-9./:%@-]{0,20}(-2024-01-01|@default|:nitro)?`).Draw(t, "name")
		forms := Forms(name)
		if forms[len(forms)-1] != Normal(name) {
			t.Fatalf("%q: %q is not the last of %q", name, Normal(name), forms)
		}
		if !slices.Contains(forms, strings.ToLower(name)) {
			t.Fatalf("%q is not among %q", name, forms)
		}
		for i, f := range forms {
			if slices.Contains(forms[:i], f) {
				t.Fatalf("%q twice in %q", f, forms)
			}
		}
	})
}

// What a config calls a model is found whatever ways there are to write the same.
func TestNamesOfConfigsAreSpelledAsThoseOfCalls(t *testing.T) {
	for _, tc := range []struct {
		config string
		calls  []string
		others []string // that are narrower, or others
	}{
		{"llama3:latest", []string{"llama3", "llama3:latest", "Llama3:LATEST", "library/llama3"}, []string{"llama3:8b"}},
		{"llama3", []string{"llama3", "llama3:latest"}, []string{"llama3:8b"}},
		{"models/Gemini-2.5-Pro", []string{"gemini-2.5-pro", "models/gemini-2.5-pro", "publishers/google/models/gemini-2.5-pro"}, []string{"gemini-2.5-pro-x"}},
		{"qwen%2Fqwen-max", []string{"qwen/qwen-max"}, []string{"qwen-max"}},
		{"openai/gpt-4o", []string{"openai/gpt-4o", "openai/gpt-4o:online", "openai/gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06:free", "openai/gpt-4o@preset/x"}, []string{"gpt-4o", "azure/gpt-4o"}},
		{"anthropic.claude-3-haiku", []string{"us.anthropic.claude-3-haiku-20240307-v1:0", "anthropic.claude-3-haiku-20240307-v1:0:48k"}, []string{"claude-3-haiku"}},
		{"gpt-4o-2024-08-06", []string{"gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06:online"}, []string{"gpt-4o", "gpt-4o-2024-05-13"}},
		{"deepseek-r1:free", []string{"deepseek-r1:free", "deepseek/deepseek-r1:free"}, []string{"deepseek-r1"}},
		{":latest", []string{":latest"}, []string{""}},
	} {
		g := ForModels(tc.config)
		for _, name := range tc.calls {
			if !g.MatchAny(Forms(name)) {
				t.Errorf("%s does not take %s, of the forms %q", tc.config, name, Forms(name))
			}
		}
		for _, name := range tc.others {
			if g.MatchAny(Forms(name)) {
				t.Errorf("%s takes %s, of the forms %q", tc.config, name, Forms(name))
			}
		}
	}
}

func TestWiderGlobsCoverNarrowerOnes(t *testing.T) {
	for _, tc := range []struct {
		wide, narrow string
		want         bool
	}{
		{"*", "gpt-4o", true},
		{"*", "gpt-*", true},
		{"**", "*", true},
		{"gpt-*", "gpt-4o", true},
		{"gpt-*", "gpt-4o*", true},
		{"gpt-*", "gpt-*", true},
		{"gpt-*", "*", false},
		{"gpt-4o*", "gpt-*", false},
		{"*-mini", "gpt-*-mini", true},
		{"gpt-*-mini", "*-mini", false},
		{"a*b", "a*b*", false},
		{"a*b*c", "a*bc", true},
		{"a*a", "a", false},
		{"gpt-4o", "gpt-4o-2024-08-06", true}, // the name without its date is the wider one
		{"gpt-4o", "openai/gpt-4o", true},
		{"gpt-4o-2024-08-06", "gpt-4o", false},
		{"llama3", "llama3:latest", true},
	} {
		if got := ForModels(tc.wide).MatchAny(ForModels(tc.narrow).Samples()); got != tc.want {
			t.Errorf("%s covers %s: got %t, want %t", tc.wide, tc.narrow, got, tc.want)
		}
	}
}

// A glob that covers another one takes each name that the other one takes, and one that
// does not misses a name.
func TestCoveringIsOfAllNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide, narrow := NewGlob(rapid.StringMatching(`[ab*]{1,6}`).Draw(t, "wide")), NewGlob(rapid.StringMatching(`[ab]{0,3}\*[ab*]{0,3}`).Draw(t, "narrow"))
		name := strings.Join(narrow, rapid.StringMatching(`[abc]{0,4}`).Draw(t, "between"))
		if covers := wide.MatchAny(narrow.Samples()); covers && !wide.Match(name) {
			t.Fatalf("%s covers %s, and does not take %q", wide, narrow, name)
		} else if witness := strings.Join(narrow, "c"); !covers && wide.Match(witness) {
			t.Fatalf("%s does not cover %s, and takes %q", wide, narrow, witness)
		}
	})
}

func FuzzForms(f *testing.F) {
	for _, s := range []string{"", "gpt-4o-2024-08-06", "%", "arn:aws:bedrock:::foundation-model/", "publishers//models/", "us.:nitro", "a@preset/x", "us.meta.a:nitro:free-v1:0:8k"} {
		f.Add(s, "a*b")
	}
	f.Fuzz(func(t *testing.T, name, pattern string) {
		forms := Forms(name)
		if !ForModels(name).MatchAny(forms) && !strings.Contains(name, "*") {
			t.Errorf("%q as a config has it is none of the forms %q of the same name", name, forms)
		}
		g := NewGlob(pattern)
		if g.Match(strings.ToLower(name)) && !g.MatchAny(forms) {
			t.Errorf("%q matches %q as it was sent, and not by its forms %q", pattern, name, forms)
		}
		if len(forms) > 20 {
			t.Errorf("%q has %d forms", name, len(forms))
		}
	})
}

// Without slashes a glob is what path.Match takes a pattern of stars for.
func TestGlobAgreesWithPathMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,8}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab]{0,10}`).Draw(t, "s")
		want, err := path.Match(pattern, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := NewGlob(pattern).Match(s); got != want {
			t.Errorf("%q matches %q: got %t, want %t", pattern, s, got, want)
		}
	})
}

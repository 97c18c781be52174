package usage

import (
	"strings"
	"testing"
)

func TestTheNewerCapIsRepeatedForServersThatIgnoreIt(t *testing.T) {
	for _, tc := range []struct {
		name     string
		ep       Endpoint
		in, want string // want is empty where nothing may change
	}{
		{"alone", epChat, `{"max_completion_tokens":9}`, `{"max_tokens":9,"max_completion_tokens":9}`},
		{"beside a null", epChat, `{"max_tokens":null,"max_completion_tokens":9}`, `{"max_tokens":9,"max_completion_tokens":9}`},
		{"beside a foreign cap that is larger", epChat, `{"max_output_tokens":20,"max_completion_tokens":9}`, `{"max_tokens":20,"max_output_tokens":20,"max_completion_tokens":9}`},
		{"beside the older one", epChat, `{"max_tokens":3,"max_completion_tokens":9}`, ``},
		{"the older one alone", epChat, `{"max_tokens":3}`, ``},
		{"none", epChat, `{}`, ``},
		{"zero", epChat, `{"max_completion_tokens":0}`, ``},
		{"another API", epResponses, `{"max_completion_tokens":9,"max_output_tokens":9}`, ``},
	} {
		got, ok := parse(t, tc.ep, tc.in).RepeatCap([]byte(tc.in))
		if ok != (tc.want != "") || ok && string(got) != tc.want || !ok && string(got) != tc.in {
			t.Errorf("%s: got %s", tc.name, got)
		}
	}
}

func TestACapThatWasWrittenIsRepeatedOnce(t *testing.T) {
	body := []byte(`{"stream":true,"max_tokens":null,"max_completion_tokens":null}`)
	r := parse(t, epChat, string(body))
	body, _ = r.AskUsage(body)
	body, _ = r.WriteCap(body, 7)
	if !r.OnlyNewCap() {
		t.Error("the cap is not the newer one alone")
	}
	body, ok := r.RepeatCap(body)
	if want := `"max_tokens":7,"max_completion_tokens":7}`; !ok || !strings.HasSuffix(string(body), want) {
		t.Errorf("got %s", body)
	}
	if again, ok := r.RepeatCap(body); ok || r.OnlyNewCap() {
		t.Errorf("repeated again: %s", again)
	}
	if parse(t, epChat, string(body)).OutputCap() != 7 {
		t.Errorf("what was written is another cap: %s", body)
	}
}

func TestWhoReadsTheNewerCap(t *testing.T) {
	for _, tc := range []struct {
		host, model string
		want        bool
	}{
		{"api.openai.com", "anything", true},
		{"EU.api.openai.com", "gpt-5", true},
		{"x.openai.azure.com", "prod", true},
		{"notopenai.com", "m", false},
		{"api.deepseek.com", "deepseek-chat", false},
		{"127.0.0.1", "gpt-4o-mini", true},
		{"", "openai/gpt-5", true},
		{"", "gpt-oss-20b", false},
		{"", "deepseek-chat", false},
		{"", "", false},
	} {
		if got := ReadsNewCap(tc.host, tc.model); got != tc.want {
			t.Errorf("%q of %q: %t", tc.model, tc.host, got)
		}
	}
}

func TestNoCallAsksForAnyNumberOfAnswers(t *testing.T) {
	for _, tc := range []struct {
		ep   Endpoint
		body string
	}{
		{epChat, `{"n":1001}`},
		{epChat, `{"n":9007199254740992}`},
		{epCompletions, `{"best_of":1001}`},
		{Endpoint{Class: Spending, API: OpenAIImages}, `{"n":1001}`},
		{Endpoint{Class: Spending, API: GeminiGenerate}, `{"generationConfig":{"candidateCount":1001}}`},
	} {
		if _, err := ParseRequest(tc.ep, jsonHeader, []byte(tc.body)); err == nil || !strings.Contains(err.Error(), "must be at most 1000") {
			t.Errorf("%s: %v", tc.body, err)
		}
		if _, err := ParseRequest(tc.ep, jsonHeader, []byte(strings.NewReplacer("1001", "1000", "9007199254740992", "1").Replace(tc.body))); err != nil {
			t.Errorf("%s, within the bound: %v", tc.body, err)
		}
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1001\r\n--b--\r\n"
	header := jsonHeader.Clone()
	header.Set("Content-Type", "multipart/form-data; boundary=b")
	if _, err := ParseRequest(Endpoint{Class: Spending, API: OpenAIImages}, header, []byte(form)); err == nil || !strings.Contains(err.Error(), "must be at most 1000") {
		t.Errorf("in a form: %v", err)
	}
}

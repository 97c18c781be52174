package tokenlimit_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// invented asks an API that no built-in format covers.
const invented = `{"model":"house-1","question":"How deep is the harbour?"}`

func TestUsageFieldsCountAnInventedAPI(t *testing.T) {
	g := start(t, "", `token_limit invented-outer {
		limit 10k tokens per day
	}
	token_limit invented {
		consumer_based
		limit 10k tokens per day
		limit 10k input_tokens per day
		limit 10k uncached_tokens per day
		usage_fields meta.read steps.#.written
	}
	test_upstream`)
	answer = reply(200, `{"answer":"Nine fathoms.","meta":{"read":31},"steps":[{"written":8},{"written":"3"}]}`)
	want(t, g.do("POST", "/ask", invented), 200)
	for _, rule := range []string{"tokens per day", "input_tokens per day", "uncached_tokens per day"} {
		g.used("invented", "default", rule, 42)
	}
	g.used("invented-outer", "", "tokens per day", 42) // all instances of a call read the same

	var entry struct {
		LLM struct {
			Total  int64  `json:"total_tokens"`
			Source string `json:"usage_source"`
		}
	}
	accessLog.Lock()
	defer accessLog.Unlock()
	if err := json.Unmarshal(accessLog.Bytes(), &entry); err != nil {
		t.Fatal(err)
	}
	if entry.LLM.Total != 42 || entry.LLM.Source != "reported" {
		t.Errorf("logged %+v", entry.LLM)
	}
}

func TestUsageFieldsDoNotReplaceWhatAFormatReports(t *testing.T) {
	g := start(t, "", "token_limit replaces {\nlimit 10k tokens per day\nusage_fields mine\n}\ntest_upstream")
	answer = reply(200, `{"mine":7,"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
	want(t, g.chat(""), 200)
	g.used("replaces", "", "tokens per day", 15)
}

func TestUsageFieldsThatAreNotFoundLeaveTheEstimate(t *testing.T) {
	g := start(t, "", "token_limit not-found {\nlimit 10k tokens per day\nusage_fields mine\n}\ntest_upstream")
	answer = reply(200, `{"answer":"Nine fathoms.","mine":0}`)
	want(t, g.chat(""), 200)
	g.used("not-found", "", "tokens per day", 8+9) // the body is 36 bytes of no known shape
}

func TestUsageFieldsOfTheJSONAreChecked(t *testing.T) {
	const handler = `{"handler":"token_limit","name":"mine","limits":[{"amount":"1","unit":"output_tokens","window":"day"}],"usage_fields":["n"]}`
	_, err := loadJSON(t, []byte(`{"apps":{"http":{"servers":{"s":{"routes":[{"handle":[`+handler+`]}]}}}}}`))
	if err == nil || !strings.Contains(err.Error(), "token_limit mine: usage_fields and limits of output_tokens exclude each other") {
		t.Errorf("got %v", err)
	}
}

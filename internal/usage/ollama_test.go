package usage

import (
	"strings"
	"testing"
)

func TestTrapsOfOllama(t *testing.T) {
	const (
		piece = `{"model":"m","created_at":"2026-11-29T10:00:00Z","message":{"role":"assistant","content":"Mica","thinking":"hm"},"done":false}`
		last  = `{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":912345678,` +
			`"prompt_eval_count":26,"eval_count":298}`
		generated = `{"model":"m","response":"Mica","done":false}`
	)
	lines := func(docs ...string) string { return strings.Join(docs, "\n") + "\n" }
	ok := func(u Usage, delivered int64) Report {
		return Report{Usage: u, Found: true, Complete: true, Model: "m", Delivered: delivered}
	}
	done := func(members string) string { return `{"model":"m","response":"","done":true` + members + `}` }
	tests := []reportTest{
		{"lines", typeLines, lines(piece, piece, last), false, ok(Usage{Input: 26, Output: 298}, 12)},
		{"lines labelled JSON", typeJSON, lines(piece, last), false, ok(Usage{Input: 26, Output: 298}, 6)},
		{"one document", typeJSON, strings.Replace(last, `"content":""`, `"content":"Mica"`, 1), false, ok(Usage{Input: 26, Output: 298}, 4)},
		{
			"generate", typeLines, lines(generated, generated, done(`,"context":[1,2],"prompt_eval_count":3,"eval_count":2`)), false,
			ok(Usage{Input: 3, Output: 2}, 8),
		},
		{
			"generate with escapes", typeJSON, `{"response":"a\n\u4f60","model":"m","done":true,"prompt_eval_count":3,"eval_count":2}`, false,
			ok(Usage{Input: 3, Output: 2}, 5),
		},
		{
			"a call of a tool", typeLines, lines(`{"model":"m","message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}`, last),
			false, ok(Usage{Input: 26, Output: 298}, 8),
		},
		{"a prompt from the cache", typeLines, lines(piece, done(`,"done_reason":"stop","eval_count":5`)), false, ok(Usage{Output: 5}, 6)},
		{"no output", typeLines, lines(done(`,"done_reason":"stop","prompt_eval_count":7`)), false, ok(Usage{Input: 7}, 0)},
		{
			"no counts beside text", typeLines, lines(piece, done(`,"done_reason":"stop"`)), false,
			Report{Complete: true, Model: "m", Delivered: 6},
		},
		{"loading uses nothing", typeJSON, done(`,"done_reason":"load"`), false, Report{Found: true, Complete: true, Model: "m"}},
		{"unloading uses nothing", typeJSON, done(`,"done_reason":"unload"`), false, Report{Found: true, Complete: true, Model: "m"}},
		{"embeddings", typeJSON, `{"model":"m","embeddings":[[0.1,0.2]],"total_duration":1,"prompt_eval_count":8}`, false, ok(Usage{Input: 8}, 0)},
		{"older embeddings", typeJSON, `{"embedding":[0.1,0.2]}`, false, Report{Complete: true, Delivered: 23}},
		{
			"trap 5: counts before the end are not added up", typeLines,
			lines(`{"model":"m","done":false,"prompt_eval_count":26,"eval_count":100}`, last), false, ok(Usage{Input: 26, Output: 298}, 0),
		},
		{"trap 7: counts go down", typeLines, lines(last, strings.Replace(last, "298", "12", 1)), false, ok(Usage{Input: 26, Output: 12}, 0)},
		{"trap 15: CRLF", typeLines, strings.ReplaceAll(lines(piece, last), "\n", "\r\n"), false, ok(Usage{Input: 26, Output: 298}, 6)},
		{"trap 20: no line end behind the last line", typeLines, piece + "\n" + last, false, ok(Usage{Input: 26, Output: 298}, 6)},
		{
			"trap 24: a huge line", typeLines, lines(`{"model":"m","context":[`+strings.Repeat("12345,", 20_000)+`1],"done":false}`, last), false,
			ok(Usage{Input: 26, Output: 298}, 0),
		},
		{"trap 25: odd counts", typeJSON, done(`,"prompt_eval_count":"26","eval_count":298.0`), false, ok(Usage{Input: 26, Output: 298}, 0)},
		{
			"trap 25: counts that are none", typeJSON, done(`,"prompt_eval_count":-4,"eval_count":1e300`), false,
			Report{Found: true, Complete: true, Model: "m"},
		},
		{
			"trap 27: an error as a line", typeLines, lines(piece, `{"error":"model runner has stopped"}`), false,
			Report{Complete: true, Failed: true, Model: "m", Delivered: 6},
		},
		{
			"trap 27: an error beside done", typeLines, lines(piece, `{"error":"gone","done":true}`), false,
			Report{Complete: true, Failed: true, Model: "m", Delivered: 6},
		},
		{"cut before the end", typeLines, lines(piece, piece), true, Report{Model: "m", Delivered: 12}},
		{"ended before the end", typeLines, lines(piece, piece), false, Report{Model: "m", Delivered: 12}},
		{"cut behind the end", typeLines, lines(piece, last), true, ok(Usage{Input: 26, Output: 298}, 6)},
		{
			"counts within text", typeLines, lines(`{"model":"m","message":{"content":"\"eval_count\":9,\"done\":true"},"done":false}`, last), false,
			ok(Usage{Input: 26, Output: 298}, 26),
		},
	}
	checkReports(t, tests)
}

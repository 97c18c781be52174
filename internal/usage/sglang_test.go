package usage

import (
	"fmt"
	"net/http"
	"testing"
)

// sgl is an answer of SGLang, or an event of one; reason is empty while there is more to
// come.
func sgl(index int, text, reason string, input, output, cached int) string {
	finish, place := "null", ""
	if reason != "" {
		finish = `{"type":"` + reason + `"}`
	}
	if index >= 0 {
		place = fmt.Sprintf(`"index":%d,`, index)
	}
	return fmt.Sprintf(`{%s"text":%q,"output_ids":[1,2],"meta_info":{"id":"a","finish_reason":%s,"prompt_tokens":%d,`+
		`"completion_tokens":%d,"cached_tokens":%d,"e2e_latency":0.5}}`, place, text, finish, input, output, cached)
}

func TestSGLang(t *testing.T) {
	tests := []struct {
		name, body string
		choices    int64
		cut        bool
		want       Report
	}{
		{
			name: "a document", body: sgl(-1, "Peat.", "stop", 9, 4, 6),
			want: Report{Usage: Usage{Input: 9, Output: 4, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{
			name: "several prompts", body: "[" + sgl(-1, "Peat.", "stop", 9, 4, 6) + "," + sgl(-1, "Bog", "length", 5, 2, 0) + "]",
			want: Report{Usage: Usage{Input: 14, Output: 6, CacheRead: 6}, Found: true, Complete: true, Delivered: 8},
		},
		{
			name: "two answers to each of two prompts", choices: 2,
			body: "[" + sgl(-1, "a", "stop", 9, 1, 0) + "," + sgl(-1, "b", "stop", 9, 2, 8) + "," +
				sgl(-1, "c", "stop", 5, 3, 1) + "," + sgl(-1, "d", "stop", 5, 4, 4) + "]",
			want: Report{Usage: Usage{Input: 14, Output: 10, CacheRead: 1}, Found: true, Complete: true, Delivered: 4},
		},
		{
			name: "a stream that repeats itself",
			body: events(sgl(-1, "Pe", "", 9, 1, 6), sgl(-1, "Peat", "", 9, 3, 6), sgl(-1, "Peat.", "stop", 9, 4, 6), done),
			want: Report{Usage: Usage{Input: 9, Output: 4, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{
			name: "a stream of two answers", choices: 2,
			body: events(sgl(0, "a", "", 9, 1, 6), sgl(1, "b", "", 9, 1, 8), sgl(1, "bb", "stop", 9, 2, 8), sgl(0, "aaa", "stop", 9, 3, 6), done),
			want: Report{Usage: Usage{Input: 9, Output: 5, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{
			name: "zeros erase nothing",
			body: events(sgl(-1, "Pe", "", 9, 1, 6), sgl(-1, "Peat", "stop", 0, 0, 0), done),
			want: Report{Usage: Usage{Input: 9, Output: 1, CacheRead: 6}, Found: true, Complete: true, Delivered: 4},
		},
		{
			name: "a stream that was cut", cut: true,
			body: events(sgl(-1, "Pe", "", 9, 1, 6), sgl(-1, "Peat", "", 9, 3, 6)),
			want: Report{Usage: Usage{Input: 9, Output: 3, CacheRead: 6}, Found: true, Delivered: 4},
		},
		{
			name: "one answer of two is missing", body: events(sgl(0, "a", "stop", 9, 1, 0), sgl(1, "b", "", 9, 1, 0)), cut: true,
			want: Report{Usage: Usage{Input: 18, Output: 2}, Found: true, Delivered: 2},
		},
		{
			name: "an embedding", body: `{"embedding":[0.5],"meta_info":{"id":"a","prompt_tokens":7}}`,
			want: Report{Usage: Usage{Input: 7}, Found: true, Complete: true},
		},
		{
			name: "a text beside other words", body: `{"text":"Peat.","meta_info":{"id":"a"}}`,
			want: Report{Complete: true, Delivered: 5},
		},
		{
			name: "an error in a stream", body: events(sgl(-1, "Pe", "", 9, 1, 6), `{"error":{"message":"x"}}`, done),
			want: Report{Usage: Usage{Input: 9, Output: 1, CacheRead: 6}, Found: true, Complete: true, Failed: true, Delivered: 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := jsonHeader
			if tt.body[0] == 'd' {
				header = streamHeader
			}
			q := &Request{Endpoint: Endpoint{API: TGIGenerate}, Choices: max(1, tt.choices)}
			for _, size := range []int{1, 7, 1 << 20} {
				got := readAnswer(q, header, http.StatusOK, []byte(tt.body), !tt.cut, func(int) int { return size })
				got.Deltas = 0
				if got.Usage != tt.want.Usage || got.Found != tt.want.Found || got.Complete != tt.want.Complete ||
					got.Failed != tt.want.Failed || got.Delivered != tt.want.Delivered {
					t.Errorf("in pieces of %d\ngot  %+v\nwant %+v", size, got, tt.want)
				}
			}
		})
	}
}

func TestSGLangTellsOnlySoManyAnswersApart(t *testing.T) {
	var s sglangTally
	for i := range int64(2 * maxAnswers) {
		if got := s.answer(i); (got != nil) != (i < maxAnswers) {
			t.Fatalf("answer %d: got %v", i, got)
		}
	}
}

func BenchmarkSGLangEvent(b *testing.B) {
	event := []byte(events(sgl(-1, "Peat and bog", "", 9, 3, 6)))
	r := NewResponse()
	r.Start(http.StatusOK, streamHeader)
	b.ReportAllocs()
	for b.Loop() {
		r.Write(event)
	}
	r.Release()
}

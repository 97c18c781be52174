package usage

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

const (
	searched = `{"type":"web_search_call","status":"completed","action":{"type":"search","query":"tide"}}`
	opened   = `{"type":"web_search_call","status":"completed","action":{"type":"open_page"}}`
	filed    = `{"type":"file_search_call","queries":["tide"]}`
	ran      = `{"type":"code_interpreter_call","container_id":"c1","code":"1"}`
	ranThere = `{"type":"code_interpreter_call","container_id":"c2","code":"1"}`
	ranNever = `{"type":"code_interpreter_call","container_id":null}`
	drew     = `{"type":"image_generation_call","result":"aGk="}`
	drewNone = `{"type":"image_generation_call","result":null}`
)

// itemsEnded are the events in which a stream tells of items as they end.
func itemsEnded(items ...string) (all []string) {
	for _, item := range items {
		all = append(all, `{"type":"response.output_item.added","item":`+item+`}`, `{"type":"response.output_item.done","item":`+item+`}`)
	}
	return all
}

func response(usage string, items ...string) string {
	return `{"object":"response","status":"completed","model":"m","output":[` + strings.Join(items, ",") + `],"usage":` + usage + `}`
}

func TestToolsThatTheVendorRan(t *testing.T) {
	const counts = `{"input_tokens":5,"output_tokens":3}`
	all := []string{searched, opened, filed, ran, searched, ran, ranThere, filed, filed}
	used := Usage{Input: 5, Output: 3, WebSearches: 2, FileSearches: 3, CodeSessions: 2}
	completed := func(r string) string { return `{"type":"response.completed","response":` + r + `}` }
	tests := []struct {
		name, body string
		want       Usage
	}{
		{"a whole answer", response(counts, all...), used},
		{"a stream that lists them again", events(append(itemsEnded(all...), completed(response(counts, all...)))...), used},
		{"a stream that does not", events(append(itemsEnded(all...), completed(response(counts)))...), used},
		{"none", response(counts, opened, drewNone), Usage{Input: 5, Output: 3}},
		{"without containers", response(counts, ranNever, ranNever), Usage{Input: 5, Output: 3, CodeSessions: 2}},
		{
			"what is billed", strings.Replace(response(counts, all...), `"usage":`, `"tool_usage":{"web_search":{"num_requests":7}},"usage":`, 1),
			Usage{Input: 5, Output: 3, WebSearches: 7, FileSearches: 3, CodeSessions: 2},
		},
		{
			"nothing is billed", strings.Replace(response(counts, all...), `"usage":`, `"tool_usage":{"web_search":{"num_requests":0}},"usage":`, 1),
			Usage{Input: 5, Output: 3, FileSearches: 3, CodeSessions: 2},
		},
		{"a stream that was cut", events(itemsEnded(all...)...), Usage{WebSearches: 2, FileSearches: 3, CodeSessions: 2}},
		{
			"a stream that was cut after it said that nothing is billed yet",
			events(append([]string{`{"type":"response.created","response":{"status":"in_progress","tool_usage":{"web_search":{"num_requests":0}},"usage":null}}`},
				itemsEnded(searched)...)...),
			Usage{WebSearches: 1},
		},
		{"items of another API", `{"type":"x","item":` + searched + `,"usage":{"input_tokens":5,"output_tokens":3}}`, Usage{Input: 5, Output: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := jsonHeader
			if strings.HasPrefix(tt.body, "data:") {
				header = streamHeader
			}
			for _, size := range []int{0, 1, 9} {
				got := readAll(header, http.StatusOK, []byte(tt.body), size)
				if got.Usage != tt.want || len(got.Other) > 0 {
					t.Errorf("in pieces of %d: got %+v %+v, want %+v", size, got.Usage, got.Other, tt.want)
				}
			}
		})
	}
}

func TestPicturesOfAStreamThatWasCut(t *testing.T) {
	got := readAll(streamHeader, http.StatusOK, []byte(events(itemsEnded(drew, drewNone, drew)...)), 9)
	if want := []ModelUsage{{Model: imageToolModel, Usage: Usage{Images: 2}}}; !reflect.DeepEqual(got.Other, want) || got.Found {
		t.Errorf("got %+v", got)
	}
}

func TestContainersBeyondTheBoundCountEachTime(t *testing.T) {
	var items []string
	for i := range maxContainers + 5 {
		items = append(items, strings.Replace(ran, "c1", strconv.Itoa(i), 1))
	}
	items = append(items, items[0], items[len(items)-1])
	got := readAll(jsonHeader, http.StatusOK, []byte(response(`{"input_tokens":1,"output_tokens":1}`, items...)), 0)
	if n := got.Usage.CodeSessions; n < maxContainers+5 || n > int64(len(items)) {
		t.Errorf("got %d", n)
	}
}

func TestToolsOfASessionCountByTurn(t *testing.T) {
	var got []Usage
	s := NewSession(nil, func(t *Turn) { got = append(got, t.Usage) })
	for range 2 {
		for _, message := range append(itemsEnded(searched, filed), `{"type":"response.completed","response":`+response(`{"input_tokens":5,"output_tokens":3}`)+`}`) {
			s.FromServer([]byte(framed(0x81, message, "")))
		}
	}
	s.Close()
	want := Usage{Input: 5, Output: 3, WebSearches: 1, FileSearches: 1}
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("got %+v", got)
	}
}

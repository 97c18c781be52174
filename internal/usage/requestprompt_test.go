package usage

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTextIsCounted(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		text int64
	}{
		{"a message", epChat, `{"messages":[{"role":"user","content":"hello"}]}`, 5},
		{"content parts", epChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}`, 5},
		{"escapes as decoded", epChat, `{"messages":[{"content":"\n\u4f60\ud83d\ude00\/"}]}`, 1 + 3 + 4 + 1},
		{"half a surrogate as its replacement", epChat, `{"messages":[{"content":"\ud83dx\udc00\ud800\u0041"}]}`, 3 + 1 + 3 + 3 + 1},
		{"bytes that are no UTF-8", epChat, "{\"messages\":[{\"content\":\"\xff\xfe\"}]}", 2},
		{"system", epMessages, `{"system":[{"type":"text","text":"abc","cache_control":{"type":"ephemeral"}}]}`, 3},
		{"instructions and input", epResponses, `{"instructions":"abc","input":"de"}`, 5},
		{"embeddings", epEmbeddings, `{"input":["abc","de"]}`, 5},
		{"roles and ids do not count", epChat, `{"messages":[{"role":"tool","tool_call_id":"call_1","id":"m"}],"user":"u"}`, 0},
		{"a long role does", epChat, `{"messages":[{"role":"` + strings.Repeat("x", 300) + `"}]}`, 300},
		{"a long id does", epChat, `{"messages":[{"id":"` + strings.Repeat("x", 300) + `"}]}`, 300},
		{"a long name does", epChat, `{"messages":[{"` + strings.Repeat("x", 300) + `":1}]}`, 300},
		{"a long name on top does", epChat, `{"` + strings.Repeat("x", 300) + `":1}`, 300},
		{"unknown members do", epChat, `{"guided_text":"abc","messages":[{"reasoning_content":"de"}]}`, 5},
		{"messages twice count twice", epChat, `{"messages":[{"content":"ab"}],"messages":[{"content":"cd"}]}`, 4},
		{"content twice counts twice", epChat, `{"messages":[{"content":"ab","content":"cd"}]}`, 4},
		{"call arguments as text", epChat, `{"messages":[{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}]}`, 3},
		{"call arguments as an object", epMessages, `{"messages":[{"content":[{"type":"tool_use","input":{ "a" : 12 }}]}]}`, int64(len(`{"a":12,}`))},
		{"tool results", epMessages, `{"messages":[{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"abc"}]}]}]}`, 3},
		{"a link in text", epResponses, `{"input":[{"content":[{"text":"a","annotations":[{"type":"url_citation","url":"http://x"}]}]}]}`, 9},
		{"a data URL as text", epChat, `{"messages":[{"content":"data:image/png;base64,AAAA"}]}`, 26},
		{"data without a media object", epMessages, `{"messages":[{"content":[{"type":"redacted_thinking","data":"AAAA"}]}]}`, 4},
		{"a text document", epMessages, `{"messages":[{"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"abcd"}}]}]}`, 4},
		{"a source of two types", epMessages, `{"messages":[{"content":[{"source":{"type":"base64","data":"abcd","type":"text"}}]}]}`, 4},
		{"a result that is no image", epResponses, `{"input":[{"type":"x","result":"abcd"}]}`, 4},
		{"data in a tool call", epMessages, `{"messages":[{"content":[{"input":{"data":"abcd"}}]}]}`, int64(len(`{"data":"abcd",}`))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.ep, tt.body).TextBytes; got != tt.text {
				t.Errorf("TextBytes = %d, want %d", got, tt.text)
			}
		})
	}
}

func TestToolsCountWhole(t *testing.T) {
	const tool = `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}`
	r := parse(t, epChat, `{"tools":[ `+tool+` , `+tool+` ]}`)
	if r.Tools != 2 || r.External {
		t.Errorf("got %d tools, external %t, want 2 and false", r.Tools, r.External)
	}
	if least := int64(2 * len(tool)); r.TextBytes < least || r.TextBytes > least+least/5 {
		t.Errorf("TextBytes = %d, want %d and a little", r.TextBytes, least)
	}
	r = parse(t, epChat, `{"response_format":{"type":"json_schema","json_schema":{"schema":{"a":1}}}}`)
	if r.TextBytes < 50 {
		t.Errorf("a schema counts %d bytes", r.TextBytes)
	}
}

func TestMediaAreCounted(t *testing.T) {
	type media struct {
		Media, Images int
		Bytes, Text   int64
		External      string
	}
	const png = "data:image/png;base64,AAAA"
	message := func(part string) string { return `{"messages":[{"role":"user","content":[` + part + `]}]}` }
	input := func(part string) string { return `{"input":[{"role":"user","content":[` + part + `]}]}` }
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want media
	}{
		{"inline image", epChat, message(`{"type":"image_url","image_url":{"url":"` + png + `","detail":"low"}}`), media{1, 1, 26, 0, ""}},
		{"image as a string", epChat, message(`{"type":"image_url","image_url":"` + png + `"}`), media{1, 1, 26, 0, ""}},
		{"image with an escaped slash", epChat, message(`{"image_url":{"url":"data:image\/png;base64,AA\/A"}}`), media{1, 1, 26, 0, ""}},
		{"remote image", epChat, message(`{"image_url":{"url":"https://x/y.png"}}`), media{1, 1, 0, 0, "a remote URL"}},
		{"PDF as an image", epChat, message(`{"image_url":{"url":"data:application/pdf;base64,AAAA"}}`), media{1, 1, 32, 0, "a document"}},
		{"recording", epChat, message(`{"input_audio":{"data":"AAAA","format":"wav"}}`), media{1, 0, 4, 0, ""}},
		{"file", epChat, message(`{"file":{"filename":"f","file_data":"data:application/pdf;base64,AA"}}`), media{1, 0, 30, 1, "a document"}},
		{"file of text", epChat, message(`{"file":{"file_data":"data:text/plain;base64,AA"}}`), media{1, 0, 25, 0, ""}},
		{"file by id", epChat, message(`{"file":{"file_id":"f-1"}}`), media{0, 0, 0, 0, "file_id"}},
		{"file id null", epChat, message(`{"file":{"file_id":null}}`), media{}},
		{"video", epChat, message(`{"video_url":{"url":"data:video/mp4;base64,AA"}}`), media{1, 0, 24, 0, "a video"}},
		{"earlier audio", epChat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, media{0, 0, 0, 0, "audio of an earlier answer"}},
		{"input image", epResponses, input(`{"type":"input_image","image_url":"` + png + `"}`), media{1, 1, 26, 0, ""}},
		{"input image by id", epResponses, input(`{"type":"input_image","file_id":"f"}`), media{1, 1, 0, 0, "file_id"}},
		{"input file", epResponses, input(`{"type":"input_file","file_url":"https://x"}`), media{1, 0, 0, 0, "a remote URL"}},
		{"generated image", epResponses, `{"input":[{"type":"image_generation_call","id":"i","result":"AAAA"}]}`, media{1, 1, 4, 0, ""}},
		{
			"Anthropic image", epMessages, message(`{"type":"image","source":{"data":"AAAA","media_type":"image/png","type":"base64"}}`),
			media{1, 1, 4, 0, ""},
		},
		{
			"Anthropic document", epMessages, message(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`),
			media{1, 0, 4, 0, "a document"},
		},
		{"Anthropic remote image", epMessages, message(`{"source":{"type":"url","url":"https://x"},"type":"image"}`), media{1, 1, 0, 0, "a remote URL"}},
		{"Anthropic remote document", epMessages, message(`{"type":"document","source":{"type":"url","url":"https://x"}}`), media{1, 0, 0, 0, "a remote URL"}},
		{"Anthropic file", epMessages, message(`{"type":"image","source":{"type":"file","file_id":"f"}}`), media{1, 1, 0, 0, "file_id"}},
		{"Ollama images", Endpoint{Dialect: Ollama}, `{"messages":[{"images":["AAAA","BBBB"]}]}`, media{2, 2, 8, 0, ""}},
		{"OCR of a document", Endpoint{}, `{"document":{"type":"document_url","document_url":"https://x"}}`, media{1, 0, 0, 0, "a remote URL"}},
		{"OCR of an image", Endpoint{}, `{"document":{"type":"image_url","image_url":"` + png + `"}}`, media{1, 1, 26, 0, ""}},
		{"images to edit", Endpoint{}, `{"image":["` + png + `"],"prompt":"a"}`, media{1, 1, 26, 1, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			got := media{r.Media, r.Images, r.MediaBytes, r.TextBytes, r.ExternalWhat}
			if got != tt.want || r.External != (got.External != "") {
				t.Errorf("got %+v (external %t), want %+v", got, r.External, tt.want)
			}
		})
	}
}

func TestWhatIsNotInTheBodyIsSeen(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		what string
	}{
		{"earlier response", epResponses, `{"previous_response_id":"resp_1"}`, "previous_response_id"},
		{"no earlier response", epResponses, `{"previous_response_id":null}`, ""},
		{"empty earlier response", epResponses, `{"previous_response_id":""}`, ""},
		{"conversation", epResponses, `{"conversation":"conv_1"}`, "conversation"},
		{"conversation as an object", epResponses, `{"conversation":{"id":"conv_1"}}`, "conversation"},
		{"stored prompt", epResponses, `{"prompt":{"id":"pmpt_1","variables":{"a":"b"}}}`, "a stored prompt"},
		{"reference", epResponses, `{"input":[{"type":"item_reference","id":"msg_1"}]}`, "item_reference"},
		{"reference without a type", epResponses, `{"input":[{"id":"msg_1"}]}`, "item_reference"},
		{"reference with an escaped type", epResponses, `{"input":[{"type":"item\u005freference","id":"msg_1","x":1}]}`, "item_reference"},
		{"stored reasoning", epResponses, `{"input":[{"type":"reasoning","id":"rs_1","summary":[]}]}`, "stored reasoning"},
		{"reasoning in the body", epResponses, `{"input":[{"type":"reasoning","id":"rs_1","encrypted_content":"AA"}]}`, ""},
		{"web search", epResponses, `{"tools":[{"type":"web_search"}]}`, "server tools"},
		{"code interpreter", epResponses, `{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, "server tools"},
		{"MCP", epResponses, `{"tools":[{"type":"function","name":"f"},{"type":"mcp"}]}`, "server tools"},
		{"MCP within a namespace", epResponses, `{"tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}`, "server tools"},
		{"a tool of two types", epResponses, `{"tools":[{"type":"mcp","type":"function"}]}`, "server tools"},
		{"a type in other letters", epResponses, `{"tools":[{"Type":"mcp"}]}`, "server tools"},
		{"functions", epResponses, `{"tools":[{"type":"function","parameters":{"properties":{"type":{"type":"mcp"}}}}]}`, ""},
		{"chat search", epChat, `{"web_search_options":{}}`, "server tools"},
		{"no chat search", epChat, `{"web_search_options":null}`, ""},
		{"Anthropic web search", epMessages, `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "server tools"},
		{"Anthropic custom tool", epMessages, `{"tools":[{"name":"f","input_schema":{"type":"object"}}]}`, ""},
		{"Anthropic tools of the client", epMessages, `{"tools":[{"type":"bash_20250124"},{"type":"text_editor_20250728"},{"type":"computer_20250124"}]}`, ""},
		{"Anthropic MCP", epMessages, `{"mcp_servers":[{"type":"url","url":"https://x"}]}`, "server tools"},
		{"no Anthropic MCP", epMessages, `{"mcp_servers":[]}`, ""},
		{"Anthropic container", epMessages, `{"container":"c_1"}`, "a container"},
		{"Anthropic container file", epMessages, `{"messages":[{"content":[{"type":"container_upload","file_id":"f"}]}]}`, "file_id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			if r.ExternalWhat != tt.what || r.External != (tt.what != "") {
				t.Errorf("got %t %q, want %q", r.External, r.ExternalWhat, tt.what)
			}
		})
	}
}

// TestCompactCountsAsEncoded compares sizes with the standard library's.
func TestCompactCountsAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := drawJSON(t, 4)
		spaced, err := json.MarshalIndent(doc, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		s := reqScanner{b: spaced, r: &Request{}}
		got, ok := s.compact(1)
		if !ok || s.i != len(spaced) {
			t.Fatalf("compact read %d of %d bytes of %s: %v", s.i, len(spaced), spaced, s.bad)
		}
		// Each container counts one comma more than it has.
		if tight := int64(decodedSize(t, doc)); got < tight || got > tight+int64(strings.Count(string(spaced), "{")+strings.Count(string(spaced), "[")) {
			t.Fatalf("compact = %d for %s, want about %d", got, spaced, tight)
		}
	})
}

// decodedSize is the size of a document without white space, strings decoded.
func decodedSize(t *rapid.T, v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case []any:
		n := 2 + max(0, len(v)-1)
		for _, e := range v {
			n += decodedSize(t, e)
		}
		return n
	case map[string]any:
		n := 2 + max(0, len(v)-1)
		for k, e := range v {
			n += len(k) + 3 + decodedSize(t, e)
		}
		return n
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// drawJSON draws a document of strings, numbers, literals, lists and objects.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "string")
	case 1:
		return rapid.Int32().Draw(t, "int")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	default:
		obj := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
				"type", "text", "content", "source", "data", "url", "image_url", "input", "id", "tools",
			})).Draw(t, "name")
			obj[name] = drawJSON(t, depth-1)
		}
		return obj
	}
}

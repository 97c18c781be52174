package usage

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Messages as the APIs have them, shortened.
const (
	sessionCreated = `{"type":"session.created","event_id":"event_1","session":{"type":"realtime","object":"realtime.session",` +
		`"id":"sess_1","model":"gpt-realtime-2025-08-28","output_modalities":["audio"],"audio":{"input":{` +
		`"transcription":{"model":"gpt-4o-mini-transcribe"},"turn_detection":{"type":"server_vad"}}}}}`
	createResponse  = `{"type":"response.create","response":{"instructions":"Say hello to everybody."}}`
	responseCreated = `{"type":"response.created","event_id":"event_2","response":{"object":"realtime.response",` +
		`"id":"resp_1","status":"in_progress","output":[],"usage":null}}`
	audioDelta = `{"type":"response.output_audio.delta","response_id":"resp_1","delta":"AAAAAAAAAAAA"}`
	textDelta  = `{"type":"response.output_audio_transcript.delta","response_id":"resp_1","delta":"Hello there."}`

	realtimeDone = `{"type":"response.done","event_id":"event_9","response":{"object":"realtime.response","id":"resp_1",` +
		`"status":"completed","status_details":null,"output":[{"type":"message","role":"assistant","content":[` +
		`{"type":"output_audio","transcript":"Hello there."}]}],"usage":{"total_tokens":253,"input_tokens":132,` +
		`"output_tokens":121,"input_token_details":{"text_tokens":119,"audio_tokens":13,"image_tokens":0,` +
		`"cached_tokens":64,"cached_tokens_details":{"text_tokens":64,"audio_tokens":0}},` +
		`"output_token_details":{"text_tokens":30,"audio_tokens":91}}}}`
	realtimeCancelled = `{"type":"response.done","response":{"object":"realtime.response","id":"resp_2","status":"cancelled",` +
		`"status_details":{"type":"cancelled","reason":"turn_detected"},"output":[],"usage":null}}`
	realtimeFailed = `{"type":"response.done","response":{"object":"realtime.response","id":"resp_3","status":"failed",` +
		`"status_details":{"type":"failed","error":{"code":"x"}},"output":[],"usage":null}}`
	realtimeError = `{"type":"error","error":{"type":"invalid_request_error","code":"conversation_already_has_active_response"}}`

	transcribedTokens = `{"type":"conversation.item.input_audio_transcription.completed","item_id":"item_1","transcript":"Hey.",` +
		`"usage":{"type":"tokens","total_tokens":48,"input_tokens":38,"input_token_details":{"text_tokens":10,"audio_tokens":28},"output_tokens":10}}`
	transcribedSeconds = `{"type":"conversation.item.input_audio_transcription.completed","item_id":"item_1","transcript":"Hey.",` +
		`"usage":{"type":"duration","seconds":2.5}}`
	transcribedSilently = `{"type":"conversation.item.input_audio_transcription.completed","item_id":"item_1","transcript":"Hey you."}`

	responsesCreate    = `{"type":"response.create","model":"gpt-5.2","store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Find the bug."}]}]}`
	responsesCreated   = `{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"gpt-5.2-2026-01-01","usage":null}}`
	responsesDelta1    = `{"type":"response.output_text.delta","sequence_number":4,"delta":"Here is it."}`
	responsesCompleted = `{"type":"response.completed","sequence_number":9,"response":{"id":"resp_1","object":"response","status":"completed",` +
		`"model":"gpt-5.2-2026-01-01","output":[{"type":"message","content":[{"type":"output_text","text":"Here is it."}]}],` +
		`"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":40},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":12},"total_tokens":120}}}`

	geminiSetup   = `{"setup":{"model":"models/gemini-live-2.5-flash","generationConfig":{"responseModalities":["AUDIO"]}}}`
	geminiAsk     = `{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Hello?"}]}],"turnComplete":true}}`
	geminiReady   = `{"setupComplete":{}}`
	geminiContent = `{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAAA"}}]}}}`
	geminiOver    = `{"serverContent":{"turnComplete":true}}`
	geminiUsage   = `{"usageMetadata":{"promptTokenCount":20,"responseTokenCount":35,"totalTokenCount":55,` +
		`"promptTokensDetails":[{"modality":"TEXT","tokenCount":8},{"modality":"AUDIO","tokenCount":12}],` +
		`"responseTokensDetails":[{"modality":"AUDIO","tokenCount":35}]}}`
)

var (
	geminiOverUsage = `{"serverContent":{"turnComplete":true},` + geminiUsage[1:]

	realtimeUsage  = Usage{Input: 132, Output: 121, CacheRead: 64, AudioIn: 13, AudioOut: 91}
	responsesUsage = Usage{Input: 100, Output: 20, CacheRead: 40, Reasoning: 12}
	geminiLive     = Usage{Input: 20, Output: 35, AudioIn: 12, AudioOut: 35}
)

// exchange plays messages, those of the client marked by ">", and returns the turns.
func exchange(extensions []string, lines ...string) (turns []Turn) {
	s := NewSession(extensions, func(t *Turn) { turns = append(turns, *t) })
	for _, line := range lines {
		if said, ok := strings.CutPrefix(line, ">"); ok {
			s.FromClient([]byte(framed(0x81, said, "\x0a\x0b\x0c\x0d")))
		} else {
			s.FromServer([]byte(framed(0x81, line, "")))
		}
	}
	s.Close()
	return turns
}

func TestSessionReportsTurns(t *testing.T) {
	const model = "gpt-realtime-2025-08-28"
	done := Turn{Report: Report{Usage: realtimeUsage, Found: true, Complete: true, Model: model, Delivered: 12}}
	text := func(turn Turn, prompt int64) Turn {
		turn.Prompt = prompt
		return turn
	}
	other := func(guessed bool, u Usage) Turn {
		return Turn{
			Report:  Report{Found: !guessed, Complete: true, Model: model, Other: []ModelUsage{{"gpt-4o-mini-transcribe", u}}},
			Guessed: guessed,
		}
	}
	responses := Turn{Report: Report{Usage: responsesUsage, Found: true, Complete: true, Model: "gpt-5.2-2026-01-01", Delivered: 11}}
	gemini := Turn{Report: Report{Usage: geminiLive, Found: true, Complete: true, Model: "gemini-live-2.5-flash"}}

	tests := []struct {
		name  string
		lines []string
		want  []Turn
	}{
		{name: "a session in which nothing is asked", lines: []string{sessionCreated}},
		{
			name:  "two turns",
			lines: []string{sessionCreated, ">" + createResponse, responseCreated, audioDelta, textDelta, realtimeDone, responseCreated, textDelta, realtimeDone},
			want:  []Turn{text(done, 6), text(done, 132)},
		},
		{
			name:  "turns that the server begins",
			lines: []string{sessionCreated, `>{"type":"input_audio_buffer.append","audio":"AAAA"}`, responseCreated, audioDelta, realtimeDone},
			want:  []Turn{done},
		},
		{
			name:  "a turn that was cut after it had been asked for",
			lines: []string{sessionCreated, ">" + createResponse},
			want:  []Turn{{Report: Report{Complete: true, Model: model}, Prompt: 6}},
		},
		{
			name:  "asking often is answered once",
			lines: []string{sessionCreated, ">" + createResponse, ">" + createResponse, ">" + createResponse},
			want:  []Turn{{Report: Report{Complete: true, Model: model}, Prompt: 18}},
		},
		{
			name:  "an answer that was cut",
			lines: []string{sessionCreated, responseCreated, realtimeDone, responseCreated, textDelta, textDelta},
			want: []Turn{
				{Report: Report{Usage: realtimeUsage, Found: true, Complete: true, Model: model, Delivered: 12}},
				{Report: Report{Model: model, Delivered: 24}, Prompt: 132},
			},
		},
		{
			name:  "an answer that the user cut does not say what it used",
			lines: []string{sessionCreated, responseCreated, textDelta, realtimeCancelled},
			want:  []Turn{{Report: Report{Complete: true, Model: model, Delivered: 12}}},
		},
		{
			name:  "an answer that failed",
			lines: []string{sessionCreated, ">" + createResponse, responseCreated, realtimeFailed},
			want:  []Turn{{Report: Report{Complete: true, Failed: true, Model: model}, Prompt: 6}},
		},
		{name: "a request that was refused", lines: []string{sessionCreated, ">" + createResponse, realtimeError}},
		{
			name:  "transcripts",
			lines: []string{sessionCreated, transcribedTokens, transcribedSeconds, transcribedSilently, `{"type":"conversation.item.input_audio_transcription.failed","error":{}}`},
			want: []Turn{
				other(false, Usage{Input: 38, Output: 10, AudioIn: 28}),
				other(false, Usage{AudioMillis: 2500}),
				other(true, Usage{Input: 8, Output: 2}),
			},
		},
		{
			name:  "Responses",
			lines: []string{">" + responsesCreate, responsesCreated, responsesDelta1, responsesCompleted, ">" + responsesCreate, responsesCreated, responsesDelta1, responsesCompleted},
			want:  []Turn{text(responses, 4), text(responses, 100)},
		},
		{
			name:  "Responses that was cut",
			lines: []string{">" + responsesCreate, responsesCreated, responsesDelta1},
			want:  []Turn{{Report: Report{Model: "gpt-5.2-2026-01-01", Delivered: 11}, Prompt: 4}},
		},
		{
			name: "Gemini, usage in the last message and behind it",
			lines: []string{
				">" + geminiSetup, geminiReady, ">" + geminiAsk, geminiContent, geminiOverUsage,
				geminiContent, geminiContent, geminiOver, geminiUsage,
			},
			want: []Turn{text(gemini, 2), text(gemini, 20)},
		},
		{
			name:  "Gemini counts on the way",
			lines: []string{">" + geminiSetup, geminiContent, `{"usageMetadata":{"promptTokenCount":20,"responseTokenCount":3,"totalTokenCount":23}}`, geminiOverUsage},
			want:  []Turn{gemini},
		},
		{
			name:  "Gemini without usage",
			lines: []string{">" + geminiSetup, geminiContent, geminiOver, geminiContent, geminiOverUsage},
			want:  []Turn{{Report: Report{Complete: true, Model: "gemini-live-2.5-flash"}}, gemini},
		},
		{
			name:  "Gemini, cut",
			lines: []string{">" + geminiSetup, ">" + geminiAsk},
			want:  []Turn{{Report: Report{Complete: true, Model: "gemini-live-2.5-flash"}, Prompt: 2}},
		},
		{
			name:  "what the user says is no report",
			lines: []string{">" + realtimeDone, `{"type":"conversation.item.created","item":{"usage":{"total_tokens":9},"content":[{"type":"text","text":"{\"type\":\"response.done\"}"}]}}`},
		},
		{name: "what is no JSON", lines: []string{"response.done", "", "[1,2", `{"type":`, ">{{{", ">\xff"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := exchange(nil, tt.lines...)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestSessionOfCompressedMessages(t *testing.T) {
	for _, extension := range []string{"permessage-deflate", "permessage-deflate; server_no_context_takeover; client_no_context_takeover"} {
		t.Run(extension, func(t *testing.T) {
			var turns []Turn
			s := NewSession([]string{extension}, func(t *Turn) { turns = append(turns, *t) })
			server, client := new(packing), new(packing)
			for range 3 {
				if strings.Contains(extension, "no_context") {
					server, client = new(packing), new(packing)
				}
				s.FromClient([]byte(framed(0xc1, client.message(createResponse), "abcd")))
				if strings.Contains(extension, "no_context") {
					server, client = new(packing), new(packing)
				}
				s.FromServer([]byte(framed(0xc1, server.message(realtimeDone), "")))
			}
			s.FromClient([]byte(framed(0xc1, client.message(createResponse), "abcd")))
			s.Close()
			if len(turns) != 4 || turns[2].Usage != realtimeUsage || turns[3].Found {
				t.Errorf("got %+v", turns)
			}
		})
	}
}

// A connection that cannot be read is never free.
func TestSessionThatCannotBeReadIsEstimated(t *testing.T) {
	tests := []struct {
		name      string
		extension string
		server    string
		ask       int
		want      int
	}{
		{name: "nothing came", extension: "x-unknown", want: 1},
		{name: "a little came", extension: "x-unknown", server: "\x81\x05Hello", want: 1},
		{name: "much came", extension: "x-unknown", server: strings.Repeat("x", 4*unheardStep+5), want: 5},
		{name: "it broke", server: framed(0xf1, "x", "") + strings.Repeat("x", unheardStep), want: 2},
		{name: "it broke, and more is asked for", server: framed(0xf1, "x", ""), ask: 3, want: 4},
		{name: "it broke behind a report", server: framed(0x81, realtimeDone, "") + framed(0xc1, "x", ""), want: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var turns []Turn
			s := NewSession([]string{tt.extension}, func(t *Turn) { turns = append(turns, *t) })
			s.FromServer([]byte(tt.server))
			for range tt.ask {
				s.FromClient([]byte(framed(0x81, createResponse, "abcd")))
			}
			s.Close()
			if len(turns) != tt.want {
				t.Errorf("%d turns, want %d: %+v", len(turns), tt.want, turns)
			}
		})
	}
}

func TestSessionWhoseClientCannotBeReadMayHaveAsked(t *testing.T) {
	var turns []Turn
	s := NewSession(nil, func(t *Turn) { turns = append(turns, *t) })
	s.FromClient([]byte(framed(0xf1, "x", "")))
	s.FromServer([]byte(framed(0x81, realtimeDone, "")))
	s.FromClient([]byte("x"))
	s.Close()
	if len(turns) != 2 || !turns[0].Found || turns[1].Found {
		t.Errorf("got %+v", turns)
	}
}

func TestSessionThatIsLeftTakesNoQuestions(t *testing.T) {
	var turns []Turn
	s := NewSession(nil, func(t *Turn) { turns = append(turns, *t) })
	s.Leave()
	s.FromClient([]byte(framed(0x81, createResponse, "abcd") + framed(0x88, "", "abcd")))
	if !s.ClientClosed() {
		t.Error("the close was not seen")
	}
	if s.Close(); len(turns) != 0 {
		t.Errorf("got %+v", turns)
	}
}

// A message of any size leaves nothing behind.
func TestSessionMemoryIsBounded(t *testing.T) {
	s := NewSession(nil, func(*Turn) {})
	defer s.Close()
	s.FromServer([]byte("\x81\x7f\x00\x00\x00\x01\x00\x00\x00\x00")) // 4 GiB to come
	s.FromServer([]byte(`{"type":"response.output_audio.delta","delta":"`))
	piece := []byte(strings.Repeat("A", 64<<10))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1 << 10 {
		s.FromServer(piece)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("64 MiB of a message took %d bytes", grown)
	}
}

func BenchmarkSession(b *testing.B) {
	audio := strings.Repeat("A", 16<<10)
	delta := `{"type":"response.output_audio.delta","event_id":"event_1","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":"` + audio + `"}`
	append20ms := `{"type":"input_audio_buffer.append","audio":"` + audio + `"}`
	var c packing
	c.message(delta)
	for _, bb := range []struct {
		name       string
		extensions []string
		server     string
		client     string
	}{
		{"text delta from the server", nil, framed(0x81, textDelta, ""), ""},
		{"audio delta from the server", nil, framed(0x81, delta, ""), ""},
		{"audio from the client", nil, "", framed(0x81, append20ms, "abcd")},
		{"compressed text deltas", []string{"permessage-deflate; server_no_context_takeover"}, framed(0xc1, new(packing).message(textDelta), ""), ""},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := NewSession(bb.extensions, func(*Turn) {})
			defer s.Close()
			server, client := []byte(bb.server), []byte(bb.client)
			b.SetBytes(int64(len(server) + len(client)))
			b.ReportAllocs()
			for b.Loop() {
				if len(server) > 0 {
					s.FromServer(server)
				}
				if len(client) > 0 {
					s.FromClient(client)
				}
			}
			if s.server.broken || s.client.broken {
				b.Fatal(fmt.Errorf("cannot be read"))
			}
		})
	}
}

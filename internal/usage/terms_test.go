package usage

import (
	"fmt"
	"net/http"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

func TestTermsOfResponses(t *testing.T) {
	tests := []struct {
		name, media, body string
		want              Terms
	}{
		{
			"the tier that served, not the one in the first events", "text/event-stream",
			events(`{"type":"response.created","response":{"status":"queued","service_tier":"auto"}}`,
				`{"type":"response.completed","response":{"status":"completed","service_tier":"flex","usage":{"input_tokens":1,"output_tokens":1}}}`),
			Terms{ServiceTier: "flex"},
		},
		{
			"a chat's tier, which null does not erase", "text/event-stream",
			events(`{"service_tier":"priority","choices":[{"index":0,"delta":{"content":"a"}}]}`,
				`{"service_tier":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done),
			Terms{ServiceTier: "priority"},
		},
		{
			"Anthropic's stream", "text/event-stream",
			events(`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1,"service_tier":"standard","speed":"fast","inference_geo":"us"}}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4,"speed":null,"inference_geo":""}}`,
				`{"type":"message_stop"}`),
			Terms{ServiceTier: "standard", Speed: "fast", Geo: "us"},
		},
		{
			"the results of a batch", "application/x-ndjson",
			`{"result":{"message":{"usage":{"input_tokens":1,"output_tokens":1,"service_tier":"batch"}}}}` + "\n",
			Terms{ServiceTier: "batch"},
		},
		{
			"Google's tier", "application/json", geminiChunk("a", "STOP", `{"promptTokenCount":1,"serviceTier":"flex"}`),
			Terms{ServiceTier: "flex"},
		},
		{
			"Vertex's traffic", "application/json",
			geminiChunk("a", "STOP", `{"promptTokenCount":1,"serviceTier":"standard","trafficType":"ON_DEMAND_PRIORITY"}`),
			Terms{ServiceTier: "ON_DEMAND_PRIORITY"},
		},
		{
			"Converse", "application/json",
			`{"usage":{"inputTokens":1,"outputTokens":1},"serviceTier":{"type":"priority"},"performanceConfig":{"latency":"optimized"}}`,
			Terms{ServiceTier: "priority", Speed: "optimized"},
		},
		{"no word of any vendor", "application/json", `{"service_tier":"` + fmt.Sprintf("%065d", 1) + `","usage":{"prompt_tokens":1}}`, Terms{}},
		{
			"how much was searched", "application/json", chat(`{"prompt_tokens":1,"search_context_size":"high"}`),
			Terms{SearchContext: "high"},
		},
		{
			"a cost in ticks", "application/json", chat(`{"prompt_tokens":1,"cost_in_usd_ticks":37756000}`),
			Terms{Cost: 3_775_600_000, CostKnown: true, CostField: "cost_in_usd_ticks"},
		},
		{
			"a cost that binary floating point cannot hold", "application/json", chat(`{"prompt_tokens":1,"cost":0.1000000000005}`),
			Terms{Cost: 100_000_000_001, CostKnown: true, CostField: "cost"},
		},
		{
			"a cost without a key of one's own", "application/json",
			chat(`{"prompt_tokens":1,"cost":2e-3,"is_byok":false,"cost_details":{"upstream_inference_cost":1.5e-3}}`),
			Terms{Cost: 2_000_000_000, CostKnown: true, CostField: "cost"},
		},
		{
			"a cost with a key of one's own", "application/json",
			chat(`{"prompt_tokens":1,"cost_details":{"upstream_inference_cost":1.5e-3},"is_byok":true,"cost":2e-3}`),
			Terms{Cost: 3_500_000_000, CostKnown: true, CostField: "cost", CostFree: true},
		},
		{
			"a key of one's own whose cost upstream is unknown", "application/json",
			chat(`{"prompt_tokens":1,"cost":0,"is_byok":true,"cost_details":{"upstream_inference_cost":null}}`),
			Terms{},
		},
		{
			"a fee for a key of one's own whose cost upstream is not told", "application/json",
			chat(`{"prompt_tokens":1,"cost":1e-4,"is_byok":true}`),
			Terms{},
		},
		{
			"a key of one's own that costs nothing upstream", "application/json",
			chat(`{"prompt_tokens":1,"cost":0,"is_byok":true,"cost_details":{"upstream_inference_cost":0}}`),
			Terms{CostKnown: true, CostField: "cost", CostFree: true},
		},
		{
			"a cost in parts", "application/json", chat(`{"prompt_tokens":1,"cost":{"request_cost":0.005,"total_cost":0.0061}}`),
			Terms{Cost: 6_100_000_000, CostKnown: true, CostField: "cost.total_cost"},
		},
		{
			"an estimate", "application/json", chat(`{"prompt_tokens":1,"estimated_cost":8.775e-06}`),
			Terms{Cost: 8_775_000, CostKnown: true, CostField: "estimated_cost"},
		},
		{
			"costs that are none", "application/json",
			chat(`{"prompt_tokens":1,"cost":-1,"estimated_cost":"1","cost_in_usd_ticks":1.5,"cost_details":7}`),
			Terms{},
		},
		{"a cost beyond belief", "application/json", chat(`{"prompt_tokens":1,"cost":1000000.000001}`), Terms{}},
		{
			"a cost among Anthropic's counts", "application/json",
			`{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1,"cost":0.5,"is_byok":false}}`,
			Terms{Cost: money.Dollar / 2, CostKnown: true, CostField: "cost"},
		},
		{
			"a cost that grows, and zeros", "text/event-stream",
			events(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"cost":{"total_cost":0.1}}}`,
				`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"cost":{"total_cost":0.3}}}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"cost":{"total_cost":0}}}`),
			Terms{Cost: 3 * money.Dollar / 10, CostKnown: true, CostField: "cost.total_cost"},
		},
		{"text that begins like a document", "text/plain", chat(`{"prompt_tokens":1,"cost":0.5}`) + " and so on", Terms{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 7} {
				if got := readAll(http.Header{"Content-Type": {tt.media}}, http.StatusOK, []byte(tt.body), size).Terms; got != tt.want {
					t.Errorf("in pieces of %d: got %+v, want %+v", size, got, tt.want)
				}
			}
		})
	}
}

func TestTermsInTheHeader(t *testing.T) {
	for name, want := range map[string]Terms{
		"x-gemini-service-tier":                    {ServiceTier: "w"},
		"x-amzn-bedrock-service-tier":              {ServiceTier: "w"},
		"x-amzn-bedrock-performanceconfig-latency": {Speed: "w"},
	} {
		h := jsonHeader.Clone()
		h.Set(name, "w")
		if got := readAll(h, http.StatusOK, []byte(`{"generation":"a","prompt_token_count":1}`), 3).Terms; got != want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestFreeModels(t *testing.T) {
	tests := []struct {
		name, asked, served string
		want                bool
	}{
		{"served", "a", "m:free", true},
		{"asked for and served", "m:free", "m:free", true},
		{"asked for, and not named", "m:free", "", true},
		{"asked for, and named without the mark", "m:free", "m", true},
		{"asked for, and another one served", "m:free", "n", false},
		{"none", "m", "m", false},
		{"of a name like it", "m:free-er", "m:free-er", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := `{"model":"` + tt.served + `","choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"cost":0}}`
			q := &Request{Model: tt.asked, Choices: 1, Endpoint: epChat}
			got := readAnswer(q, jsonHeader, http.StatusOK, []byte(body), true, func(int) int { return 5 }).Terms
			if got.CostFree != tt.want || !got.CostKnown || got.Cost != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestCostsAreReadExactly writes amounts as servers do, with as many decimals as there
// are and with an exponent.
func TestCostsAreReadExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := money.USD(rapid.Int64Range(1, int64(maxCost)).Draw(t, "picodollars"))
		written := rapid.SampledFrom([]string{want.String(), fmt.Sprintf("%de-12", int64(want))}).Draw(t, "written")
		got := readAll(jsonHeader, http.StatusOK, []byte(chat(`{"prompt_tokens":1,"cost":`+written+`}`)), 0).Terms
		if got.Cost != want || !got.CostKnown {
			t.Fatalf("%s: got %+v", written, got)
		}
	})
}

func TestModalitiesOfTheCache(t *testing.T) {
	tests := []struct {
		name, body string
		want       Usage
	}{
		{
			"Gemini", geminiChunk("a", "STOP", `{"promptTokenCount":100,"candidatesTokenCount":30,"cachedContentTokenCount":60,`+
				`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":40},{"modality":"IMAGE","tokenCount":20},{"modality":"VIDEO","tokenCount":30},{"modality":"DOCUMENT","tokenCount":5}],`+
				`"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":25},{"modality":"IMAGE","tokenCount":15},{"modality":"TEXT","tokenCount":20}],`+
				`"candidatesTokensDetails":[{"modality":"VIDEO","tokenCount":12}]}`),
			Usage{
				Input: 100, Output: 30, CacheRead: 60, AudioIn: 40, ImageIn: 20, VideoIn: 30,
				AudioCached: 25, ImageCached: 15, VideoOut: 12,
			},
		},
		{
			"Realtime", `{"object":"response","status":"completed","usage":{"input_tokens":100,"output_tokens":9,"input_token_details":` +
				`{"cached_tokens":60,"audio_tokens":40,"image_tokens":20,"cached_tokens_details":{"audio_tokens":25,"image_tokens":15,"text_tokens":20}}}}`,
			Usage{Input: 100, Output: 9, CacheRead: 60, AudioIn: 40, ImageIn: 20, AudioCached: 25, ImageCached: 15},
		},
		{
			"chat", chat(`{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,"prompt_tokens_details":{"video_tokens":30},` +
				`"completion_tokens_details":{"video_tokens":5}}`),
			Usage{Input: 100, Output: 9, VideoIn: 30, VideoOut: 5},
		},
		{
			"more of the cache than there is", chat(`{"prompt_tokens":10,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":6,` +
				`"audio_tokens":5,"image_tokens":9,"cached_tokens_details":{"audio_tokens":99,"image_tokens":99}}}`),
			Usage{Input: 10, CacheRead: 6, AudioIn: 5, ImageIn: 5, AudioCached: 5, ImageCached: 1},
		},
		{
			"thoughts inside of the rest",
			geminiChunk("a", "STOP", `{"promptTokenCount":341,"candidatesTokenCount":3362,"thoughtsTokenCount":3347,"totalTokenCount":3703}`),
			Usage{Input: 341, Output: 3362, Reasoning: 3347},
		},
		{
			"thoughts beside the rest",
			geminiChunk("a", "STOP", `{"promptTokenCount":20,"candidatesTokenCount":151,"thoughtsTokenCount":382,"totalTokenCount":553}`),
			Usage{Input: 20, Output: 533, Reasoning: 382},
		},
		{
			"thoughts and no total",
			geminiChunk("a", "STOP", `{"promptTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":5}`),
			Usage{Input: 20, Output: 10, Reasoning: 5},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := readAll(jsonHeader, http.StatusOK, []byte(tt.body), 5).Usage; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// consistent tells whether parts that do not overlap are no more than their whole.
func (u *Usage) consistent() bool {
	return u.CacheRead+u.CacheWrite5m+u.CacheWrite1h <= u.Input &&
		u.AudioIn+u.ImageIn+u.VideoIn <= u.Input && u.Reasoning+u.AudioOut+u.ImageOut+u.VideoOut <= u.Output &&
		u.AudioCached+u.ImageCached <= u.CacheRead && u.AudioCached <= u.AudioIn && u.ImageCached <= u.ImageIn
}

// TestPartsNeverExceedTheirWhole is for prices, which are of parts that do not overlap.
func TestPartsNeverExceedTheirWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Range(0, 50).Draw(t, name) }
		u := Usage{
			Input: n("input"), Output: n("output"), CacheRead: n("read"), CacheWrite5m: n("5m"), CacheWrite1h: n("1h"),
			Reasoning: n("reasoning"), AudioIn: n("audio"), ImageIn: n("image"), VideoIn: n("video"),
			AudioOut: n("audio out"), ImageOut: n("image out"), VideoOut: n("video out"),
			AudioCached: n("audio cached"), ImageCached: n("image cached"),
		}
		total := u.Total()
		u.bound()
		if u.Total() != total || !u.consistent() {
			t.Fatalf("got %+v", u)
		}
	})
}

func TestOtherUnits(t *testing.T) {
	tests := []struct {
		name, body string
		want       Usage
	}{
		{
			"drawings with lines beside pictures",
			`{"data":[{"b64_json":"aGk="}],"usage":{"input_tokens":5,"output_tokens":70},"svg_usage":{"input_tokens":3,"output_tokens":40}}`,
			Usage{Input: 8, Output: 110, ImageOut: 70, Images: 1},
		},
		{
			"pages with annotations", `{"pages":[],"usage_info":{"pages_processed":3,"pages_processed_annotation":2}}`,
			Usage{Pages: 3, Annotated: 2},
		},
		{
			"pages with annotations alone", `{"pages":[],"usage_info":{"pages_processed":0,"pages_processed_annotation":2}}`,
			Usage{Annotated: 2},
		},
		{
			"tools of xAI", chat(`{"prompt_tokens":1,"completion_tokens":2,"server_side_tool_usage_details":` +
				`{"web_search_calls":3,"file_search_calls":2,"code_interpreter_calls":1}}`),
			Usage{Input: 1, Output: 2, WebSearches: 3, FileSearches: 2, CodeSessions: 1},
		},
		{
			"tools of OpenRouter", chat(`{"prompt_tokens":1,"completion_tokens":2,"server_tool_use_details":{"web_search_requests":4}}`),
			Usage{Input: 1, Output: 2, WebSearches: 4},
		},
		{
			"what was cited", chat(`{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"citation_tokens":8}`),
			Usage{Input: 1, Output: 2, Citations: 8},
		},
		{
			"a search that only its citations tell of",
			`{"choices":[{"message":{"content":"a","annotations":[{"type":"url_citation","url_citation":{"url":"http://x"}}]},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			Usage{Input: 1, Output: 2, WebSearches: 1},
		},
		{
			"a citation of a file",
			`{"choices":[{"message":{"content":"a","annotations":[{"type":"file_citation"}]},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			Usage{Input: 1, Output: 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := readAll(jsonHeader, http.StatusOK, []byte(tt.body), 5).Usage; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestEventsThatRepeatTheirTermsDoNotAllocate has streams that say the same in each event.
func TestEventsThatRepeatTheirTermsDoNotAllocate(t *testing.T) {
	for name, event := range map[string]string{
		"chat": `{"model":"m","service_tier":"default","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}`,
		"Responses": `{"type":"response.in_progress","response":{"object":"response","status":"in_progress","model":"m",` +
			`"service_tier":"auto","output":[],"usage":null}}`,
		"Gemini": geminiChunk("a", "", `{"promptTokenCount":1,"serviceTier":"standard","trafficType":"ON_DEMAND",`+
			`"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":1}]}`),
		"the end of an item": `{"type":"response.output_item.done","item":` + searched + `}`,
	} {
		r := NewResponse()
		r.Start(http.StatusOK, streamHeader)
		piece := []byte(events(event))
		for range 8 {
			r.Write(piece) // room is made
		}
		if n := testing.AllocsPerRun(100, func() { r.Write(piece) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		r.Release()
	}
}

package usage

import "bytes"

// maxCount is the largest count believed: what is beyond is not exact in the numbers
// of JSON, nor a count of tokens.
const maxCount = 1 << 53

// optional is a count that may not have been said.
type optional struct {
	n     int64
	known bool
}

// set takes a count if raw JSON is one; a null never erases a count.
func (o *optional) set(raw []byte) {
	if n, ok := countOf(raw); ok {
		o.n, o.known = n, true
	}
}

// raise is set, but that a zero does not erase a count either.
func (o *optional) raise(raw []byte) {
	if n, ok := countOf(raw); ok && (n > 0 || !o.known) {
		o.n, o.known = n, true
	}
}

// tokens is a usage object in the words of OpenAI and the many APIs that speak like
// it: prompt_tokens and completion_tokens in the older words, input_tokens and
// output_tokens in the newer ones.
type tokens struct {
	prompt, completion optional
	input, output      optional
	total              optional

	in, out   details
	cached    optional // cached_tokens beside the counts
	hit       optional // prompt_cache_hit_tokens
	numCached optional // num_cached_tokens
	oddCached optional // prompt_token_details.cached_tokens
	written   optional // cache_creation_input_tokens
	reasoning optional // reasoning_tokens beside the counts
	citations optional
	searches  optional
	// connectors is what Mistral's tools have put into the prompt, beside it.
	connectors optional
	files      optional // searches of files
	sessions   optional // runs of code
	millis     optional // of audio

	cost          reportedCost
	searchContext string
}

// details is what a count is said to be made of.
type details struct {
	cached, reasoning, audio, image, video optional

	cachedAudio, cachedImage optional // parts of cached

	written    [4]optional // words for cache writes, the first non-zero counts
	written12h optional
}

// readUsage reads a usage object into the normal form. It reports false if raw is
// none, or counts nothing. For generated see tokens.usage.
func readUsage(raw []byte, generated bool) (u Usage, ok bool) {
	if len(raw) == 0 || raw[0] != typeObject {
		return u, false
	}
	var t tokens
	ok = readTokens(raw, &t)
	return t.usage(generated), ok
}

// readTokens reads a usage object into t, which is large: who waits for a stream to go on
// should not have copies of it on the stack. It reports false if raw is none, or counts
// nothing.
func readTokens(raw []byte, t *tokens) (ok bool) {
	ok = members(raw, func(name, v []byte) {
		switch string(name) {
		case "prompt_tokens":
			t.prompt.set(v)
		case "completion_tokens":
			t.completion.set(v)
		case "input_tokens":
			t.input.set(v)
		case "output_tokens":
			t.output.set(v)
		case "total_tokens":
			t.total.set(v)
		case "prompt_tokens_details", "input_tokens_details", "input_token_details":
			t.in = readDetails(t.in, v)
		case "completion_tokens_details", "output_tokens_details", "output_token_details":
			t.out = readDetails(t.out, v)
		case "prompt_token_details":
			t.oddCached.set(memberOf(v, "cached_tokens"))
		case "cached_tokens":
			t.cached.set(v)
		case "prompt_cache_hit_tokens":
			t.hit.set(v)
		case "num_cached_tokens":
			t.numCached.set(v)
		case "cache_creation_input_tokens":
			t.written.set(v)
		case "reasoning_tokens":
			t.reasoning.set(v)
		case "citation_tokens":
			t.citations.set(v)
		case "connector_tokens":
			t.connectors.set(v)
		case "connectors":
			t.searches = readConnectors(t.searches, v)
		case "num_search_queries":
			t.searches.set(v)
		case "server_tool_use":
			t.searches.set(memberOf(v, "web_search_requests"))
		case "server_tool_use_details": // OpenRouter
			t.searches.raise(memberOf(v, "web_search_requests"))
		case "server_side_tool_usage_details": // xAI
			t.searches.set(memberOf(v, "web_search_calls"))
			t.files.set(memberOf(v, "file_search_calls"))
			t.sessions.set(memberOf(v, "code_interpreter_calls"))
		case "search_context_size": // Perplexity
			t.searchContext = string(wordOf(v))
		case "seconds", "prompt_audio_seconds":
			t.millis.setSeconds(v)
		default:
			t.cost.take(name, v)
		}
	})
	if !ok {
		*t = tokens{}
	}
	return t.prompt.known || t.completion.known || t.input.known || t.output.known || t.total.known ||
		t.millis.known
}

// readConnectors sums up the searches of the web among the calls of Mistral's tools.
func readConnectors(searches optional, v []byte) optional {
	var sum optional
	members(v, func(name, v []byte) {
		if n, ok := countOf(v); ok && bytes.HasPrefix(name, []byte("web_search")) {
			sum.n += n
			sum.known = true
		}
	})
	return sum.or(searches)
}

// readDetails reads a details object; null leaves what another spelling said.
func readDetails(d details, v []byte) details {
	if kindOf(v) != typeObject {
		return d
	}
	d = details{}
	members(v, func(name, v []byte) {
		switch string(name) {
		case "cached_tokens":
			d.cached.set(v)
		case "reasoning_tokens":
			d.reasoning.set(v)
		case "audio_tokens":
			d.audio.set(v)
		case "image_tokens":
			d.image.set(v)
		case "video_tokens":
			d.video.set(v)
		case "cached_tokens_details": // Realtime
			d.cachedAudio.set(memberOf(v, "audio_tokens"))
			d.cachedImage.set(memberOf(v, "image_tokens"))
		case "multimodal_tokens": // vLLM
			d.image.set(memberOf(v, "image"))
		case "cache_write_tokens":
			d.written[0].set(v)
		case "cache_creation_input_tokens": // Alibaba
			d.written[1].set(v)
		case "created_cache_tokens": // vLLM
			d.written[2].set(v)
		case "cache_creation_tokens":
			d.written[3].set(v)
		case "cache_write_tokens_details":
			d.written12h.set(memberOf(v, "ttl_12h_tokens"))
		}
	})
	return d
}

// firstOf returns the first count that is not zero.
func firstOf(counts ...optional) int64 {
	for _, c := range counts {
		if c.n > 0 {
			return c.n
		}
	}
	return 0
}

// usage brings a usage object into the normal form. generated tells that the document
// carries generated text, so that what a total holds beyond the prompt is output.
func (t *tokens) usage(generated bool) Usage {
	in, out := t.input, t.output
	// Some gateways write both vocabularies and leave one of them at zero.
	older := in.n+out.n == 0 && (t.prompt.known || t.completion.known)
	if older {
		in, out = t.prompt, t.completion
	}
	cached := firstOf(t.in.cached, t.cached, t.hit, t.numCached, t.oddCached)
	reasoning := firstOf(t.out.reasoning, t.reasoning)
	written := firstOf(t.in.written[0], t.in.written[1], t.in.written[2], t.in.written[3], t.written)
	u := Usage{
		CacheRead:   cached,
		Reasoning:   reasoning,
		AudioIn:     t.in.audio.n,
		ImageIn:     t.in.image.n,
		VideoIn:     t.in.video.n,
		AudioOut:    t.out.audio.n,
		ImageOut:    t.out.image.n,
		VideoOut:    t.out.video.n,
		AudioCached: t.in.cachedAudio.n,
		ImageCached: t.in.cachedImage.n,
		WebSearches: t.searches.n,
		AudioMillis: t.millis.n,
		Citations:   t.citations.n,

		FileSearches: t.files.n,
		CodeSessions: t.sessions.n,
	}
	u.CacheWrite1h = t.in.written12h.n
	u.CacheWrite5m = max(0, written-u.CacheWrite1h)

	u.Input, u.Output = in.n, out.n
	if n := t.connectors.n; n > 0 && (!t.total.known || t.total.n >= in.n+out.n+n) {
		u.Input += n
	}
	if cached > u.Input {
		u.Input += cached // the prompt was counted without
	}
	switch total := t.total.n; {
	case !in.known && out.known:
		u.Input = max(0, total-out.n)
	case !out.known && !generated:
		u.Input = max(u.Input, total)
	case reasoning > 0 && (total == in.n+out.n+reasoning || total == u.Input+out.n+reasoning):
		u.Output += reasoning // xAI counts it beside the completion
	case reasoning == 0 && total > u.Input+out.n:
		u.Output = total - u.Input // Gemini's compatible API leaves thinking out of the completion
	case reasoning > out.n:
		// Perplexity's deep research counts neither its reasoning nor what it cites.
		u.Output += reasoning
		u.Input += t.citations.n
		u.Citations = 0 // the price is that of the input
	}
	u.bound()
	return u
}

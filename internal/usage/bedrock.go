package usage

// metricsFamily is the counts that Bedrock puts beside the last document of any family
// of models that it streams. It takes no document as its own: those counts repeat what
// the family says, if it says anything.
var metricsFamily = family{
	name:      "bedrock metrics",
	positions: []position{{"amazon-bedrock-invocationMetrics", fragment}},
	extract: func(v view, t *tally) bool {
		if v.kind(0) != typeObject {
			return false
		}
		made(&t.bedrock).metrics = readMetrics(v.raw(0))
		t.ended, t.complete = true, true
		return false
	},
}

// bedrockFamily is Bedrock's Converse API, whole or in the messages of an event stream,
// and the models that have words of their own there: Nova, Titan, Llama, Cohere and
// Mistral.
var bedrockFamily = family{
	name: "bedrock",
	positions: []position{
		bedUsage:    {"usage", fragment},
		bedTier:     {"serviceTier.type", word},
		bedSpeed:    {"performanceConfig.latency", word},
		bedMetadata: {"metadata.usage", fragment},
		bedMessage:  {"output.message", mark},
		bedBlock:    {"contentBlockIndex contentBlockDelta.contentBlockIndex", mark},
		bedStop:     {"stopReason messageStop.stopReason", word},
		bedWhole: {
			"output.message.content[].text output.message.content[].toolUse.input " +
				"output.message.content[].reasoningContent.reasoningText.text", text,
		},
		bedDelta: {"delta.text", text},
		bedPiece: {
			"delta.toolUse.input delta.reasoningContent.text contentBlockDelta.delta.text " +
				"contentBlockDelta.delta.toolUse.input contentBlockDelta.delta.reasoningContent.text", text,
		},

		bedTitanInput:  {"inputTextTokenCount", word},
		bedTitanOutput: {"results[].tokenCount", word},
		bedTitanTotal:  {"totalOutputTextTokenCount", word},
		bedLlamaInput:  {"prompt_token_count", word},
		bedLlamaOutput: {"generation_token_count", word},
		bedModelStop:   {"completionReason stop_reason", word},
		bedOutputStop:  {"outputs[].stop_reason", word},
		bedModelText:   {"outputText results[].outputText generation generations[].text", text},
		bedOutputText:  {"outputs[].text", text},
	},
	extract: extractBedrock,
}

const (
	bedUsage = iota
	bedTier
	bedSpeed
	bedMetadata // the last message of a stream of Nova
	bedMessage
	bedBlock // a piece of a stream
	bedStop
	bedWhole
	bedDelta
	bedPiece

	bedTitanInput
	bedTitanOutput
	bedTitanTotal
	bedLlamaInput
	bedLlamaOutput
	bedModelStop
	bedOutputStop
	bedModelText
	bedOutputText
)

// bedrockTally is what only this family needs.
type bedrockTally struct {
	// input and output are counts that come in pieces: the prompt in the first one, the
	// output, so far, in each. A null never erases a count.
	input, output optional
	metrics       Usage
}

func extractBedrock(v view, t *tally) bool {
	u, ok := readConverse(v.raw(bedUsage))
	if !ok {
		u, ok = readConverse(v.raw(bedMetadata))
	}
	known := extractConverse(v, t) || ok
	if ok {
		say(&t.terms.ServiceTier, v.word(bedTier))
		say(&t.terms.Speed, v.word(bedSpeed))
		t.report(u)
		// In a stream it comes behind all else.
		t.complete = t.complete || t.unended
	}
	return extractModel(v, t) || known
}

// extractConverse reads the text and the course of an answer of Converse or Nova.
func extractConverse(v view, t *tally) (known bool) {
	switch {
	case v.kind(bedBlock) != typeAbsent:
		t.streamed += v.text(bedDelta) + v.text(bedPiece)
		t.unended = true
		known = true
	case v.kind(bedMessage) != typeAbsent:
		t.streamed += v.text(bedWhole)
		known = true
	}
	if v.kind(bedStop) == typeString {
		t.ended = true
		known = true
	}
	return known
}

// extractModel reads what models say in words of their own.
func extractModel(v view, t *tally) (known bool) {
	input := v.number(bedTitanInput).or(v.number(bedLlamaInput))
	output := v.sum(bedTitanOutput).or(v.number(bedTitanTotal)).or(v.number(bedLlamaOutput))
	if known = input.known || output.known; known {
		b := made(&t.bedrock)
		b.input, b.output = input.over(b.input), output.over(b.output)
	}
	if n := v.text(bedModelText) + v.text(bedOutputText); n > 0 {
		t.streamed += n
		known = true
	}
	if !known {
		return false
	}
	switch {
	case v.kind(bedModelStop) == typeString, v.kind(bedOutputStop) == typeString:
		t.ended = true
	case v.kind(bedModelStop) == typeNull, v.kind(bedOutputStop) == typeNull:
		t.unended = true
	}
	return true
}

// over returns o, or p where o is not known or a zero that would erase a count.
func (o optional) over(p optional) optional {
	if o.n > 0 || o.known && !p.known {
		return o
	}
	return p
}

// readConverse reads a usage object of Converse, whose input leaves the cache out. It
// reports false if raw is none.
func readConverse(raw []byte) (Usage, bool) {
	var input, output, read, readTwin, written, writtenTwin optional
	var hour, details int64
	ok := members(raw, func(name, v []byte) {
		switch string(name) {
		case "inputTokens":
			input.set(v)
		case "outputTokens":
			output.set(v)
		case "cacheReadInputTokens":
			read.set(v)
		case "cacheReadInputTokenCount":
			readTwin.set(v)
		case "cacheWriteInputTokens":
			written.set(v)
		case "cacheWriteInputTokenCount":
			writtenTwin.set(v)
		case "cacheDetails":
			hour, details = readCacheDetails(v)
		}
	})
	if !ok || !input.known && !output.known {
		return Usage{}, false
	}
	wrote := firstOf(written, writtenTwin, optional{n: details})
	u := Usage{
		Input:        input.n,
		Output:       output.n,
		CacheRead:    firstOf(read, readTwin),
		CacheWrite1h: min(hour, wrote),
	}
	u.CacheWrite5m = wrote - u.CacheWrite1h
	u.Input += u.CacheRead + wrote
	return u, true
}

// readCacheDetails sums up what was written to the cache, for an hour and in all.
func readCacheDetails(raw []byte) (hour, all int64) {
	if kindOf(raw) != typeArray {
		return 0, 0
	}
	elements(raw, func(v []byte) {
		n, _ := countOf(memberOf(v, "inputTokens"))
		all += n
		if string(wordOf(memberOf(v, "ttl"))) == "1h" {
			hour += n
		}
	})
	return hour, all
}

// readMetrics reads the counts of metricsFamily.
func readMetrics(raw []byte) Usage {
	var input, output, read, written optional
	ok := members(raw, func(name, v []byte) {
		switch string(name) {
		case "inputTokenCount":
			input.set(v)
		case "outputTokenCount":
			output.set(v)
		case "cacheReadInputTokenCount":
			read.set(v)
		case "cacheWriteInputTokenCount":
			written.set(v)
		}
	})
	if !ok {
		return Usage{}
	}
	return Usage{
		Input:        input.n + read.n + written.n,
		Output:       output.n,
		CacheRead:    read.n,
		CacheWrite5m: written.n,
	}
}

// conclude puts into the report what the documents did not report as a whole.
func (b *bedrockTally) conclude(r *Report) {
	u := Usage{Input: b.input.n, Output: b.output.n}
	switch {
	case b.metrics != (Usage{}) && !r.Found:
		r.Usage, r.Found = b.metrics, true
	case u != (Usage{}) && !r.Found:
		r.Usage, r.Found = u, true
	}
}

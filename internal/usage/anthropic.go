package usage

// anthropicFamily is Anthropic's Messages API and its batches, wherever they are
// served.
var anthropicFamily = family{
	name: "anthropic",
	positions: []position{
		antType:        {"type", word},
		antModel:       {"model", word},
		antUsage:       {"usage", fragment},
		antStartModel:  {"message.model", word},
		antStartUsage:  {"message.usage", fragment},
		antResultModel: {"result.message.model", word},
		antResultUsage: {"result.message.usage", fragment},
		antText: {
			"delta.text delta.thinking delta.partial_json content_block.text content_block.thinking", text,
		},
		antWhole: {"content[].text content[].thinking content[].input", text},
	},
	extract: extractAnthropic,
}

const (
	antType = iota
	antModel
	antUsage
	antStartModel
	antStartUsage
	antResultModel
	antResultUsage
	antText  // in the pieces of a stream
	antWhole // in a message
)

func extractAnthropic(v view, t *tally) bool {
	switch string(v.word(antType)) {
	case "message_start":
		t.served(v, antStartModel)
		t.unended = true
		made(&t.anthropic).merge(v.raw(antStartUsage))
	case "content_block_start", "content_block_delta":
		t.streamed += v.text(antText)
		t.piece = true
	case "content_block_stop", "ping":
	case "message_delta":
		// The spec allows several; each is cumulative.
		t.unended, t.ended = true, true
		a := made(&t.anthropic)
		a.final = a.merge(v.raw(antUsage)) || a.final
	case "message_stop":
		t.complete = t.complete || t.anthropic != nil && t.anthropic.final
	case "message":
		t.served(v, antModel)
		t.streamed += v.text(antWhole)
		a := made(&t.anthropic)
		a.final = a.merge(v.raw(antUsage)) || a.final
	case "error":
		t.failed = true
		t.ended = true
	case "":
		// A line of a batch's results.
		raw := v.raw(antResultUsage)
		if raw == nil {
			return false
		}
		t.served(v, antResultModel)
		var line anthropicTally
		if line.merge(raw) {
			t.add(line.usage())
			t.terms.takeTerms(&line.terms)
		}
	default:
		return false
	}
	return true
}

// anthropicTally is a usage object of Anthropic, put together from all that a stream
// said: each field counts as it was said last, but nulls and zeros erase nothing. Counts
// may shrink.
type anthropicTally struct {
	input    optional // without the cache
	read     optional
	written  optional
	split5m  optional
	split1h  optional
	output   optional
	thinking optional
	searches optional

	terms      Terms
	iterations []iteration
	final      bool // the output was said, not only where it began
}

// iteration is one round of a call that ran several models or compacted its context.
type iteration struct {
	kind, model string
	counts      anthropicTally
}

// merge takes the fields of a usage object. It reports whether there were any.
func (a *anthropicTally) merge(raw []byte) bool {
	raw = validObject(raw)
	if raw == nil {
		return false
	}
	a.mergeCounts(raw)
	var cost reportedCost // of those who offer other vendors' models
	members(raw, func(name, v []byte) {
		switch string(name) {
		case "iterations":
			if kindOf(v) == typeArray {
				a.iterations = readIterations(v)
			}
		case "service_tier":
			say(&a.terms.ServiceTier, wordOf(v))
		case "speed":
			say(&a.terms.Speed, wordOf(v))
		case "inference_geo":
			say(&a.terms.Geo, wordOf(v))
		default:
			cost.take(name, v)
		}
	})
	a.terms.takeCost(&cost)
	return a.input.known || a.output.known
}

func (a *anthropicTally) mergeCounts(raw []byte) {
	members(raw, func(name, v []byte) {
		switch string(name) {
		case "input_tokens":
			a.input.raise(v)
		case "cache_read_input_tokens":
			a.read.raise(v)
		case "cache_creation_input_tokens":
			a.written.raise(v)
		case "cache_creation":
			members(v, func(name, v []byte) {
				switch string(name) {
				case "ephemeral_5m_input_tokens":
					a.split5m.raise(v)
				case "ephemeral_1h_input_tokens":
					a.split1h.raise(v)
				}
			})
		case "output_tokens":
			a.output.raise(v)
		case "output_tokens_details":
			a.thinking.raise(memberOf(v, "thinking_tokens"))
		case "server_tool_use":
			a.searches.raise(memberOf(v, "web_search_requests"))
		}
	})
}

func readIterations(raw []byte) []iteration {
	var all []iteration
	elements(raw, func(v []byte) {
		it := iteration{kind: string(wordOf(memberOf(v, "type"))), model: string(wordOf(memberOf(v, "model")))}
		it.counts.mergeCounts(v)
		all = append(all, it)
	})
	return all
}

// usage brings the fields into the normal form: input_tokens leaves the cache out. A
// stream restates what was written to the cache but not for how long, so what is not
// known to be kept for an hour is kept for five minutes.
func (a *anthropicTally) usage() Usage {
	written := a.written.n
	if written == 0 {
		written = a.split5m.n + a.split1h.n
	}
	u := Usage{
		Input:        a.input.n + a.read.n + written,
		Output:       a.output.n,
		CacheRead:    a.read.n,
		CacheWrite1h: min(a.split1h.n, written),
		Reasoning:    a.thinking.n,
		WebSearches:  a.searches.n,
	}
	u.CacheWrite5m = written - u.CacheWrite1h
	u.bound()
	return u
}

// conclude puts Anthropic's usage into the report, if the response was its.
func (a *anthropicTally) conclude(t *tally, r *Report) {
	if !a.input.known && !a.output.known {
		return
	}
	u := a.usage()
	a.resolveIterations(&u, r)
	if !a.final {
		// Cut before the output was said: the count at the start is a floor, and the
		// input is known unless a server that learns it later said zero.
		r.Complete = false
		if u.Input == 0 {
			return
		}
		u.Output = max(u.Output, r.DeliveredTokens())
	}
	r.Usage = u
	r.Found = u != (Usage{}) || t.delivered() == 0
}

// resolveIterations corrects u by the rounds of the call: compaction is not in the
// counts of the whole, an advisor is another model, and where a fallback answered,
// the whole is right and the fallback served.
func (a *anthropicTally) resolveIterations(u *Usage, r *Report) {
	var sum Usage
	summed, fallback := false, false
	for i := range a.iterations {
		it := &a.iterations[i]
		switch it.kind {
		case "message", "compaction":
			part := it.counts
			if part.written.n > 0 && !part.split1h.known && !part.split5m.known {
				part.split1h.n = max(0, u.CacheWrite1h-sum.CacheWrite1h)
			}
			sum.add(part.usage())
			summed = true
		case "advisor_message":
			r.addOther(it.model, it.counts.usage())
		case "fallback_message":
			fallback = true
			if it.model != "" {
				r.Model = it.model
			}
		}
	}
	if summed && !fallback {
		sum.Reasoning, sum.WebSearches = u.Reasoning, u.WebSearches
		*u = sum
		u.bound()
	}
}

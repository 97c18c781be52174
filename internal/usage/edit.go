package usage

import "strconv"

// reqSpan is where a value stands in the body; at is 0 if it does not.
type reqSpan struct{ at, end int }

// reqEdit is what the parse noted for later edits of the same body.
type reqEdit struct {
	size         int     // of the body
	open         int     // behind the outermost brace
	empty        bool    // no members
	options      reqSpan // stream_options
	optionsOpen  int     // behind its brace; 0 if it is null
	optionsEmpty bool
	usage        reqSpan // the value of include_usage
	configOpen   int     // behind the brace of the config for the cap; 0 if it is absent or null
	configEmpty  bool
	capped       bool      // nothing to write
	asked        bool      // AskUsage has edited
	newCap       bool      // the cap of a chat call stands in max_completion_tokens alone
	largest      int64     // of the caps in the body, foreign ones too
	nulls        *reqNulls // nil in nearly all bodies
}

// reqNulls is where members stand that are given and say nothing.
type reqNulls struct {
	caps      [5]reqSpan // from reqMaxTokens on
	config    reqSpan    // the config for the cap
	configCap reqSpan    // a cap in it that is none
}

// null is where to note such a member.
func (e *reqEdit) null() *reqNulls {
	if e.nulls == nil {
		e.nulls = new(reqNulls)
	}
	return e.nulls
}

// AskUsage makes a streamed OpenAI chat or completion report its usage, by
// stream_options.include_usage, and returns the new body and true. It returns body
// itself and false where the client asked already, where the API has no such option
// or the body is signed. Every other byte stays as it was, and body is not changed.
//
// body is what was parsed, or what the last edit returned: edits follow each other.
func (r *Request) AskUsage(body []byte) ([]byte, bool) {
	e := &r.edit
	if r.API != OpenAIChat && r.API != OpenAICompletions || !r.Stream || r.UsageAsked || r.Signed ||
		e.asked || len(body) != e.size {
		return body, false
	}
	const member = `"include_usage":true`
	e.asked = true
	switch {
	case e.usage.at > 0:
		return e.replace(body, e.usage, "true"), true
	case e.optionsOpen > 0 && e.optionsEmpty:
		return e.replace(body, reqSpan{e.optionsOpen, e.optionsOpen}, member), true
	case e.optionsOpen > 0:
		return e.replace(body, reqSpan{e.optionsOpen, e.optionsOpen}, member+","), true
	case e.options.at > 0:
		return e.replace(body, e.options, "{"+member+"}"), true
	default:
		return e.insert(body, `"stream_options":{`+member+"}"), true
	}
}

// WriteCap writes the API's own limit of output tokens for one choice, 1 to 2^53,
// where the client gave none, sets Cap to it and returns the new body and true. It
// returns body itself and false where a limit is given or cannot be written: to an
// unknown API or a signed body. Bodies are as for [Request.AskUsage].
func (r *Request) WriteCap(body []byte, n int64) ([]byte, bool) {
	e := &r.edit
	if n < 1 || n > 1<<53 || r.Signed || e.capped || len(body) != e.size {
		return body, false
	}
	field := reqMaxTokens
	configs := reqConfigsOf(r.API)
	switch r.API {
	case OpenAIChat:
		// The older name stays with the clients, and servers, that use it.
		if e.nullCap(reqMaxCompletionTokens).at > 0 || e.nullCap(reqMaxTokens).at == 0 {
			field, e.newCap = reqMaxCompletionTokens, true
		}
	case OpenAICompletions, AnthropicMessages, CohereChat, MistralChat:
	case OpenAIResponses, LMStudioChat:
		field = reqMaxOutputTokens
	case LlamaCPPCompletion:
		field = reqNPredict
	case BedrockInvoke, BedrockInvokeStream:
		return body, false // the body does not tell which cap its model takes
	default:
		if len(configs) == 0 || len(configs[0].caps) == 0 {
			return body, false
		}
	}
	// A foreign cap member may act beside this one.
	r.Cap, r.CapImplied = max(e.largest, n), false
	e.capped = true
	value := strconv.FormatInt(n, 10)
	if len(configs) > 0 {
		return e.writeConfigCap(body, &configs[0], value), true
	}
	if null := e.nullCap(field); null.at > 0 {
		return e.replace(body, null, value), true
	}
	return e.insert(body, `"`+reqControlNames[field]+`":`+value), true
}

// nullCap is where a cap stands that is null.
func (e *reqEdit) nullCap(field reqField) reqSpan {
	if e.nulls == nil {
		return reqSpan{}
	}
	return e.nulls.caps[field-reqMaxTokens]
}

// insert writes a member in front of all others.
func (e *reqEdit) insert(body []byte, member string) []byte {
	if !e.empty {
		member += ","
	}
	e.empty = false
	return e.replace(body, reqSpan{e.open, e.open}, member)
}

// replace returns a new body with text in place of a span, and moves what was noted
// behind it.
func (e *reqEdit) replace(body []byte, old reqSpan, text string) []byte {
	grown := len(text) - (old.end - old.at)
	out := make([]byte, 0, len(body)+grown)
	out = append(out, body[:old.at]...)
	out = append(out, text...)
	out = append(out, body[old.end:]...)

	e.size = len(out)
	for _, p := range [...]*int{&e.options.at, &e.usage.at, &e.optionsOpen} {
		if *p >= old.end && *p > 0 {
			*p += grown
		}
	}
	for _, p := range [...]*reqSpan{&e.options, &e.usage} {
		if p.end >= old.end && p.end > 0 {
			p.end += grown
		}
	}
	if e.nulls != nil {
		moved := *e.nulls
		for i := range moved.caps {
			if p := &moved.caps[i]; p.at >= old.end && p.at > 0 {
				p.at += grown
				p.end += grown
			}
		}
		e.nulls = &moved
	}
	return out
}

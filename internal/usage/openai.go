package usage

import (
	"strconv"
	"strings"
)

// openaiFamily is chat completions, completions and embeddings of OpenAI and of all
// who speak like it, and every other document that has a usage object in its words.
var openaiFamily = family{
	name: "openai",
	positions: []position{
		chatModel:     {"model", word},
		chatUsage:     {"usage", fragment},
		chatGroqUsage: {"x_groq.usage", fragment},
		chatTimings:   {"timings", fragment},
		chatTier:      {"service_tier", word},
		chatError:     {"error", word},
		chatData:      {"data[]", mark},
		chatEmbedding: {"data[].embedding", mark},

		chatChoice:       {"choices[]", mark},
		chatIndex:        {"choices[].index", word},
		chatFinish:       {"choices[].finish_reason", word},
		chatChoiceUsage:  {"choices[].usage", fragment},
		chatChoiceError:  {"choices[].error", word},
		chatDelta:        {"choices[].delta", mark},
		chatAnnotation:   {"choices[].delta.annotations[].type choices[].message.annotations[].type", word},
		chatText:         {"choices[].text", text},
		chatContent:      {"choices[].delta.content choices[].message.content", text},
		chatReasoning:    {"choices[].delta.reasoning choices[].message.reasoning", text},
		chatReasoningAlt: {"choices[].delta.reasoning_content choices[].message.reasoning_content", text},
		chatOther:        {chatOtherText("choices[].delta.") + chatOtherText("choices[].message."), text},
	},
	extract: extractOpenAI,
}

// chatFamily is the part of openaiFamily that is known by its choices, which no other
// family has: most events are told at once.
var chatFamily = family{
	name:      "openai chat",
	positions: openaiFamily.positions,
	extract: func(v view, t *tally) bool {
		return v.kind(chatChoice) != typeAbsent && extractOpenAI(v, t)
	},
}

const (
	chatModel = iota
	chatUsage
	chatGroqUsage
	chatTimings
	chatTier
	chatError
	chatData
	chatEmbedding
	chatChoice
	chatIndex
	chatFinish
	chatChoiceUsage
	chatChoiceError
	chatDelta
	chatAnnotation
	chatText
	chatContent
	chatReasoning
	chatReasoningAlt
	chatOther
)

// chatOtherText names the other places of text in a message or in a piece of one.
func chatOtherText(at string) string {
	var paths strings.Builder
	for _, path := range []string{
		"content[].text", "content[].thinking[].text", "refusal", "audio.transcript",
		"tool_calls[].function.name", "tool_calls[].function.arguments",
		"function_call.name", "function_call.arguments",
	} {
		paths.WriteString(at + path + " ")
	}
	return paths.String()
}

// chatTally is what only this family needs.
type chatTally struct {
	// choices is the last usage of each choice, where usage came beside a choice.
	choices []choiceUsage
	final   bool // usage of all choices came
	cited   bool // places on the web were cited
}

// maxChoices bounds the choices told apart; no API offers more.
const maxChoices = 256

type choiceUsage struct {
	index int64
	usage Usage
}

func extractOpenAI(v view, t *tally) bool {
	t.served(v, chatModel)
	say(&t.terms.ServiceTier, v.word(chatTier))
	t.fault(v, chatError)
	t.fault(v, chatChoiceError)
	choices := v.count(chatChoice)
	if choices > 0 {
		t.unended = t.unended || v.kind(chatFinish) != typeAbsent || v.kind(chatDelta) != typeAbsent
		switch finish := v.word(chatFinish); {
		case string(finish) == "error":
			t.failed, t.ended = true, true
		case finish != nil:
			t.ended = true
		}
		n := chatTextOf(v)
		t.streamed += n
		// Each choice begins with a piece that has its role. A second one without text
		// may have it where it is not known.
		if n == 0 && v.kind(chatDelta) == typeObject && t.opened < max(1, t.expected) {
			t.opens()
		}
		t.chat.cited = t.chat.cited || string(v.word(chatAnnotation)) == "url_citation"
	}
	t.listed = t.listed || v.kind(chatData) != typeAbsent
	t.output = t.output || v.kind(chatEmbedding) != typeAbsent
	u, ok := t.readUsage(v.raw(chatUsage), choices > 0)
	if !ok {
		u, ok = t.readUsage(v.raw(chatGroqUsage), choices > 0)
	}
	switch {
	case ok:
		t.chat.take(t, v, choices, u)
	case v.kind(chatChoiceUsage) != typeAbsent:
		v.each(chatChoiceUsage, func(element int32, _ byte, raw []byte) {
			if u, ok := t.readUsage(raw, true); ok {
				t.chat.takeChoice(t, v.at(chatIndex, element), u)
			}
		})
	case v.kind(chatTimings) == typeObject:
		*made(&t.timings) = readTimings(v.raw(chatTimings))
	default:
		t.piece = true
	}
	return true
}

// take takes the usage of a document. Beside a single choice it may be the usage of
// that choice alone.
func (c *chatTally) take(t *tally, v view, choices int, u Usage) {
	switch {
	case choices == 1:
		c.takeChoice(t, v.raw(chatIndex), u)
		return
	case choices == 0 && u != (Usage{}):
		// The extra chunk behind all choices.
		t.ended, t.complete = true, t.complete || t.unended
	}
	c.final = c.final || u != (Usage{})
	t.report(u)
}

func (c *chatTally) takeChoice(t *tally, index []byte, u Usage) {
	t.report(u)
	if u == (Usage{}) {
		return
	}
	i, ok := countOfDigits(index)
	if !ok {
		i, _ = strconv.ParseInt(string(index), 10, 64)
	}
	for k := range c.choices {
		if c.choices[k].index == i {
			c.choices[k].usage = u
			return
		}
	}
	if len(c.choices) < maxChoices {
		c.choices = append(c.choices, choiceUsage{i, u})
	}
}

// conclude sums up choices that were only counted one by one, and falls back on
// timings. The prompt is the same for all choices and counts once.
func (c *chatTally) conclude(timings *Usage, r *Report) {
	switch {
	case !r.Found && timings != nil && *timings != Usage{}:
		r.Usage, r.Found = *timings, true
	case len(c.choices) > 1 && !c.final:
		r.Usage.Output, r.Usage.Reasoning = 0, 0
		r.Usage.AudioOut, r.Usage.ImageOut, r.Usage.VideoOut = 0, 0, 0
		for _, choice := range c.choices {
			r.Usage.Output += choice.usage.Output
			r.Usage.Reasoning += choice.usage.Reasoning
			r.Usage.AudioOut += choice.usage.AudioOut
			r.Usage.ImageOut += choice.usage.ImageOut
			r.Usage.VideoOut += choice.usage.VideoOut
		}
	}
	// Models that search before they answer do not count it.
	if c.cited && r.Usage.WebSearches == 0 {
		r.Usage.WebSearches = 1
	}
}

// readTimings reads llama.cpp's timings.
func readTimings(raw []byte) Usage {
	var cached, prompt, predicted optional
	ok := members(raw, func(name, v []byte) {
		switch string(name) {
		case "cache_n":
			cached.set(v)
		case "prompt_n":
			prompt.set(v)
		case "predicted_n":
			predicted.set(v)
		}
	})
	if !ok {
		return Usage{}
	}
	return Usage{Input: cached.n + prompt.n, Output: predicted.n, CacheRead: cached.n}
}

// chatTextOf counts the text of all choices. Some servers send the same text under two
// names.
func chatTextOf(v view) int64 {
	return max(v.text(chatText), v.text(chatContent)) +
		max(v.text(chatReasoning), v.text(chatReasoningAlt)) +
		v.text(chatOther)
}

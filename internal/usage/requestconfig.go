package usage

import (
	"strconv"
	"strings"
)

// reqConfig is a top-level member whose object holds what steers the call. All of
// its names are given in every spelling that the vendor takes, the one to write first.
type reqConfig struct {
	names   []string
	caps    []string // of the most output tokens of one answer; 0 is no cap
	endless bool     // a cap below 0 is none either, else it is refused
	choices []string // of how many answers there are
}

// The vendors that read protocol buffers take both spellings of a name, and no other.
var (
	reqGeminiConfigs = []reqConfig{{
		names:   []string{"generationConfig", "generation_config"},
		caps:    []string{"maxOutputTokens", "max_output_tokens"},
		choices: []string{"candidateCount", "candidate_count"},
	}}
	reqInteractionConfigs = []reqConfig{{
		names: []string{"generation_config", "generationConfig"},
		caps:  []string{"max_output_tokens", "maxOutputTokens"},
	}}
	reqVertexConfigs = []reqConfig{{
		names:   []string{"parameters"},
		choices: []string{"sampleCount", "sample_count"},
	}}
	reqOllamaConfigs = []reqConfig{{
		names:   []string{"options"},
		caps:    []string{"num_predict"},
		endless: true,
	}}
)

// The models of Bedrock that are no vendor's elsewhere, and servers of one's own.
var (
	reqConverseConfigs = []reqConfig{{
		names: []string{"inferenceConfig"},
		caps:  []string{"maxTokens"},
	}}
	reqInvokeConfigs = []reqConfig{
		{names: []string{"inferenceConfig"}, caps: []string{"maxTokens", "max_new_tokens"}},
		{names: []string{"textGenerationConfig"}, caps: []string{"maxTokenCount"}},
		{names: []string{"imageGenerationConfig"}, choices: []string{"numberOfImages"}},
	}
	reqTGIConfigs = []reqConfig{
		{names: []string{"parameters"}, caps: []string{"max_new_tokens"}, choices: []string{"best_of"}},
		{names: []string{"sampling_params"}, caps: []string{"max_new_tokens"}, choices: []string{"n"}},
	}
)

// reqConfigsOf are the configs of an API. A cap is written to the first.
func reqConfigsOf(a API) []reqConfig {
	switch a {
	case GeminiGenerate, GeminiStream:
		return reqGeminiConfigs
	case GeminiInteractions:
		return reqInteractionConfigs
	case VertexPredict:
		return reqVertexConfigs
	case OllamaChat, OllamaGenerate:
		return reqOllamaConfigs
	case BedrockConverse, BedrockConverseStream:
		return reqConverseConfigs
	case BedrockInvoke, BedrockInvokeStream:
		return reqInvokeConfigs
	case TGIGenerate, TGIStream:
		return reqTGIConfigs
	default:
		return nil
	}
}

// configOf returns the config that a folded member name means, nil if none.
func (s *reqScanner) configOf(folded []byte) *reqConfig {
	configs := reqConfigsOf(s.r.API)
	for i := range configs {
		if reqMeans(configs[i].names, folded) {
			return &configs[i]
		}
	}
	return nil
}

// reqMeans tells whether a folded name is one of names but for its case.
func reqMeans(names []string, folded []byte) bool {
	for _, n := range names {
		if len(n) == len(folded) && strings.EqualFold(n, string(folded)) {
			return true
		}
	}
	return false
}

// spelled checks a name that means one of names: how it is written, as the lenient
// parsers take what the strict ones pass over, and that it has not come before.
func (s *reqScanner) spelled(names []string, raw []byte, came *bool) bool {
	written := string(raw)
	if strings.IndexByte(written, '\\') >= 0 {
		written = string(reqUnquote(nil, raw))
	}
	exact := false
	for _, n := range names {
		exact = exact || n == written
	}
	switch {
	case !exact:
		s.bad = &BadRequest{Param: names[0], Message: strconv.Quote(names[0]) + " must be written exactly so"}
	case *came:
		s.bad = reqDuplicate(names[0])
	default:
		*came = true
		return true
	}
	return false
}

// reqConfigSeen is what has come of the configs.
type reqConfigSeen struct {
	member [3]bool // by their order in reqConfigsOf
	capped bool    // by a cap that is one
}

// config reads the value of a config, an object or null. raw is the name's spelling.
func (s *reqScanner) config(c *reqConfig, raw []byte) bool {
	configs := reqConfigsOf(s.r.API)
	which := 0
	for &configs[which] != c {
		which++
	}
	if !s.spelled(c.names, raw, &s.configs.member[which]) {
		return false
	}
	e := &s.r.edit
	start := s.i
	if s.word("null") {
		if which == 0 {
			e.null().config = reqSpan{start, s.i}
		}
		return true
	}
	if s.peek() != '{' {
		s.bad = reqWrongType(c.names[0], "an object")
		return false
	}
	s.i++
	if which == 0 {
		e.configOpen, e.configEmpty = s.i, true
	}
	var capCame, choicesCame bool
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return s.bad == nil
		}
		if which == 0 {
			e.configEmpty = false
		}
		name, _ := s.name(raw)
		switch {
		case reqMeans(c.caps, name):
			if !s.spelled(c.caps, raw, &capCame) || !s.configCap(c, which) {
				return false
			}
		case reqMeans(c.choices, name):
			if !s.spelled(c.choices, raw, &choicesCame) {
				return false
			}
			n, set, ok := s.count(c.choices[0], false)
			if !ok {
				return false
			}
			if n > reqMostChoices {
				s.bad = reqTooMany(c.choices[0])
				return false
			}
			s.chosen = s.chosen || set
			s.r.Choices = max(s.r.Choices, n)
		case !s.setting(name):
			return false
		}
	}
}

// configCap reads the value of a cap.
func (s *reqScanner) configCap(c *reqConfig, which int) bool {
	start := s.i
	n, _, ok := s.count(c.caps[0], c.endless)
	if !ok {
		return false
	}
	if n <= 0 {
		if which == 0 {
			s.r.edit.null().configCap = reqSpan{start, s.i}
		}
		return true
	}
	s.configs.capped = true
	s.r.Cap = max(s.r.Cap, n)
	return true
}

// setting reads any other member of a config. Schemas are shown to the model; the
// rest is numbers and words, and counts only at worst.
func (s *reqScanner) setting(name []byte) bool {
	schema := strings.Contains(string(name), "schema")
	modalities := reqModalities(name)
	named, start := int64(s.named), s.i
	n, ok := s.toolModels(reqNamingOf(name), 3)
	if ok && modalities {
		s.r.draws(s.b[start:s.i])
	}
	if schema {
		s.r.TextBytes += n
	} else {
		s.r.markup += n + named
	}
	return ok
}

// writeConfigCap writes a cap into the first config, which may be absent, null or
// empty.
func (e *reqEdit) writeConfigCap(body []byte, c *reqConfig, value string) []byte {
	member := `"` + c.caps[0] + `":` + value
	var nulls reqNulls
	if e.nulls != nil {
		nulls = *e.nulls
	}
	switch {
	case nulls.configCap.at > 0:
		return e.replace(body, nulls.configCap, value)
	case e.configOpen > 0 && e.configEmpty:
		return e.replace(body, reqSpan{e.configOpen, e.configOpen}, member)
	case e.configOpen > 0:
		return e.replace(body, reqSpan{e.configOpen, e.configOpen}, member+",")
	case nulls.config.at > 0:
		return e.replace(body, nulls.config, "{"+member+"}")
	default:
		return e.insert(body, `"`+c.names[0]+`":{`+member+"}")
	}
}

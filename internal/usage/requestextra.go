package usage

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// Members that hold further members of the body: gateways and vendors lay them over
// those at the top, or hand them to the model as they are.

// extra reads such a member of a gateway. What it holds counts as if it stood at the
// top; what steers the call has to stand there.
func (s *reqScanner) extra(holder string) bool {
	if s.peek() != '{' {
		return s.content(reqOther, reqOther, 2)
	}
	s.i++
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return s.bad == nil
		}
		if len(raw) > reqLongName {
			s.r.TextBytes += int64(s.named)
		}
		name, _ := s.name(raw)
		field := s.fieldOf(name, reqFieldOf(name))
		if field == reqExtra || s.configOf(name) != nil || reqSteers(name) {
			s.bad = reqMisplaced(string(name), holder)
			return false
		}
		how, modalities, start := reqNamingOf(name), reqModalities(name), s.i
		if !s.field(field) || !s.note(how, modalities, start) {
			return false
		}
	}
}

// passedOn reads such a member of a vendor, which counts as a schema does.
func (s *reqScanner) passedOn(holder string) bool {
	start := s.i
	n, ok := s.compact(2)
	s.r.TextBytes += n
	if !ok || s.b[start] != '{' {
		return ok
	}
	gjson.ParseBytes(s.b[start:s.i]).ForEach(func(name, _ gjson.Result) bool {
		if folded := strings.ToLower(name.Str); reqSteers([]byte(folded)) {
			s.bad = reqMisplaced(folded, holder)
		}
		return s.bad == nil
	})
	return s.bad == nil
}

// reqSteers tells the names that steer a call at any vendor.
func reqSteers(folded []byte) bool {
	if reqFieldOf(folded) < reqNControls {
		return true
	}
	switch string(folded) {
	case "max_gen_len", "max_new_tokens", "max_tokens_to_sample", "max_length", "maxtokens", "maxoutputtokens",
		"maxtokencount", "num_predict", "generationconfig", "generation_config", "inferenceconfig",
		"textgenerationconfig", "num_generations", "n_cmpl", "num_return_sequences", "candidatecount", "candidate_count":
		return true
	}
	return false
}

func reqMisplaced(name, holder string) *BadRequest {
	return &BadRequest{Param: name, Message: strconv.Quote(name) + " must not be given within " + strconv.Quote(holder)}
}

package usage

import (
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// reqHintNames are the members that decide a price, by their field.
var reqHintNames = [...]string{
	reqServiceTier - reqFirstHint: "service_tier", reqSpeed - reqFirstHint: "speed",
	reqSize - reqFirstHint: "size", reqQuality - reqFirstHint: "quality",
}

// hint reads the value of a member that decides the price. Only words do: what else may
// stand there, such as the speed of speech, has no price.
func (s *reqScanner) hint(field reqField) bool {
	if s.peek() != '"' {
		_, ok := s.compact(2)
		return ok
	}
	raw, size, ok := s.str()
	if !ok {
		return false
	}
	if size > maxTerm {
		s.r.TextBytes += int64(size) // no word of any vendor
		return true
	}
	s.bad = s.r.hint(field, string(reqUnquote(make([]byte, 0, maxTerm), raw)))
	return s.bad == nil
}

// hint notes a word that decides the price. Given twice, it would be one for us and
// another one for the upstream.
func (r *Request) hint(field reqField, word string) *BadRequest {
	at := field - reqFirstHint
	if r.hinted&(1<<at) != 0 {
		return reqDuplicate(reqHintNames[at])
	}
	r.hinted |= 1 << at
	h := &r.Hints
	*[...]*string{&h.ServiceTier, &h.Speed, &h.ImageSize, &h.ImageQuality}[at] = word
	return nil
}

// formHint notes the word in a field of a form, if it is one that decides the price.
func (r *Request) formHint(name, value string) *BadRequest {
	name = strings.ToLower(strings.TrimSpace(name))
	for i, n := range reqHintNames {
		if n == name && len(value) <= maxTerm {
			return r.hint(reqFirstHint+reqField(i), value)
		}
	}
	return nil
}

// searches notes how much searches of the web are to read, as options of the call or of
// its tools say. The largest counts.
func (r *Request) searches(options gjson.Result) {
	if options.IsArray() {
		options.ForEach(func(_, tool gjson.Result) bool {
			if tool.IsObject() {
				r.searches(tool)
			}
			return true
		})
		return
	}
	size := options.Get("search_context_size").Str
	if reqContextRank(size) > reqContextRank(r.Hints.SearchContext) {
		r.Hints.SearchContext = strings.Clone(size)
	}
}

// reqContextRank orders the sizes of the context of searches; 0 is none of them.
func reqContextRank(size string) int {
	switch size {
	case "low":
		return 1
	case "medium":
		return 2
	case "high":
		return 3
	default:
		return 0
	}
}

// reqCharacters is how many code points a string has, given what stands between its
// quotes. Its escapes have been checked.
func reqCharacters(raw []byte) (n int64) {
	for i := 0; i < len(raw); n++ {
		switch {
		case raw[i] != '\\':
			_, size := utf8.DecodeRune(raw[i:])
			i += size
		case raw[i+1] == 'u':
			_, size := reqRune(raw[i:])
			i += size
		default:
			i += 2
		}
	}
	return n
}

package usage

import (
	"strings"

	"github.com/tidwall/gjson"
)

// parseObject parses raw JSON; what is not a valid object has no members.
func parseObject(raw []byte) gjson.Result {
	if len(raw) == 0 || raw[0] != typeObject || !gjson.ValidBytes(raw) {
		return gjson.Result{}
	}
	return gjson.Result{Type: gjson.JSON, Raw: string(raw)}
}

// members calls fn with each member of an object that is valid JSON; of a name that comes
// twice, the last one counts, so fn sets and does not add.
//
// It does what [gjson.Result.ForEach] does, but that the values have no Num: who reads a
// count reads its digits, and to make a float of every number is most of the work.
func members(v gjson.Result, fn func(name string, v gjson.Result)) {
	if !v.IsObject() {
		return
	}
	s := v.Raw
	for i := 1; ; {
		i = past(s, i, ',')
		if i >= len(s) || s[i] != '"' {
			return
		}
		end := stringEnd(s, i)
		name := stringOf(s[i:end])
		i = past(s, end, ':')
		if i >= len(s) {
			return
		}
		value := gjson.Result{}
		switch s[i] {
		case '"':
			end = stringEnd(s, i)
			value.Type, value.Str = gjson.String, stringOf(s[i:end])
		case '{', '[':
			end = containerEnd(s, i)
			value.Type = gjson.JSON
		default:
			end = i + 1
			for end < len(s) && class[s[end]]&scalar != 0 {
				end++
			}
			switch s[i] {
			case 't':
				value.Type = gjson.True
			case 'f':
				value.Type = gjson.False
			case 'n':
			default:
				value.Type = gjson.Number
			}
		}
		value.Raw = s[i:end]
		fn(name, value)
		i = end
	}
}

// past returns where, from i on, something else stands than blanks and the separator.
func past(s string, i int, separator byte) int {
	for i < len(s) && (s[i] == separator || class[s[i]]&blank != 0) {
		i++
	}
	return i
}

// stringEnd returns where the string ends whose quote stands at i.
func stringEnd(s string, i int) int {
	for i++; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(s)
}

// containerEnd returns where the object or array ends whose bracket stands at i.
func containerEnd(s string, i int) int {
	for depth := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = stringEnd(s, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(s)
}

// stringOf decodes a string in its quotes.
func stringOf(raw string) string {
	if len(raw) < 2 || strings.IndexByte(raw, '\\') >= 0 {
		return gjson.Parse(raw).Str
	}
	return raw[1 : len(raw)-1]
}

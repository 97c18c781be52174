package usage

// validObject returns raw if it is a JSON object, nil if it is something else or not valid.
func validObject(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != typeObject {
		return nil
	}
	if end := validEnd(raw, 0); end < 0 || pastBlanks(raw, end) != len(raw) {
		return nil
	}
	return raw
}

// members calls fn with each member of an object that is valid JSON, its name decoded; what
// is no object has none. Of a name that comes twice, the last one counts, so fn sets and
// does not add. Both slices are valid until fn returns.
func members(object []byte, fn func(name, value []byte)) {
	if kindOf(object) != typeObject {
		return
	}
	for i := 1; ; {
		i = past(object, i, ',')
		if i >= len(object) || object[i] != '"' {
			return
		}
		var name []byte
		end := plainEnd(object, i+1)
		if end >= 0 {
			name = object[i+1 : end]
			end++
		} else {
			end = stringEnd(object, i)
			name = unquote(object[i:end])
		}
		i = past(object, end, ':')
		if i >= len(object) {
			return
		}
		end = valueEnd(object, i)
		fn(name, object[i:end])
		i = end
	}
}

// elements calls fn with each element of an array, or the value of each member of an
// object, that is valid JSON; what is neither has none.
func elements(container []byte, fn func(value []byte)) {
	if kindOf(container) != typeArray {
		members(container, func(_, value []byte) { fn(value) })
		return
	}
	for i := 1; ; {
		i = past(container, i, ',')
		if i >= len(container) || container[i] == ']' {
			return
		}
		end := valueEnd(container, i)
		fn(container[i:end])
		i = end
	}
}

// memberOf returns the raw JSON of the first member of that name of an object that is valid
// JSON, nil if there is none.
func memberOf(object []byte, name string) (found []byte) {
	members(object, func(n, value []byte) {
		if found == nil && string(n) == name {
			found = value
		}
	})
	return found
}

// kindOf returns the type of a value in raw JSON, typeAbsent if there is none.
func kindOf(raw []byte) byte {
	if len(raw) == 0 {
		return typeAbsent
	}
	return kinds[raw[0]]
}

// wordOf decodes raw JSON if it is a string; it returns nil if not.
func wordOf(raw []byte) []byte {
	if kindOf(raw) != typeString {
		return nil
	}
	return unquote(raw)
}

// past returns where, from i on, something else stands than blanks and the separator.
func past(p []byte, i int, separator byte) int {
	for i < len(p) && (p[i] == separator || class[p[i]]&blank != 0) {
		i++
	}
	return i
}

// valueEnd returns where the value ends that begins at i, in valid JSON.
func valueEnd(p []byte, i int) int {
	switch p[i] {
	case '"':
		return stringEnd(p, i)
	case '{', '[':
		return containerEnd(p, i)
	}
	for i++; i < len(p) && class[p[i]]&scalar != 0; i++ {
	}
	return i
}

// stringEnd returns where the string ends whose quote stands at i.
func stringEnd(p []byte, i int) int {
	for i++; i < len(p); {
		n := indexSpecial(p[i:])
		if n < 0 {
			break
		}
		if i += n + 1; p[i-1] == '"' {
			return i
		}
		i++ // what is escaped
	}
	return len(p)
}

// containerEnd returns where the object or array ends whose bracket stands at i.
func containerEnd(p []byte, i int) int {
	for depth := 0; i < len(p); {
		n := indexBracket(p[i:])
		if n < 0 {
			break
		}
		switch i += n; p[i] {
		case '"':
			i = stringEnd(p, i)
			continue
		case '{', '[':
			depth++
		default:
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(p)
}

// plainEnd returns where the quote stands that ends the string that p[i] is in; -1 if the
// string has escapes or control characters, or goes on behind p.
func plainEnd(p []byte, i int) int {
	if i = reqPlainRun(p, i, len(p)); i < len(p) && p[i] == '"' {
		return i
	}
	return -1
}

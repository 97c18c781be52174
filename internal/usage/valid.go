package usage

// validEnd returns where the value ends that begins at p[i]; -1 if it is not valid JSON.
func validEnd(p []byte, i int) int {
	if i >= len(p) {
		return -1
	}
	switch kinds[p[i]] {
	case typeObject:
		return validMembers(p, i, nil)
	case typeArray:
		return validElements(p, i, nil)
	case typeString:
		return validString(p, i)
	case typeNumber:
		if end, ok := validNumber(p, i); ok {
			return end
		}
		return -1
	case typeTrue:
		return validLiteral(p, i, "true")
	case typeFalse:
		return validLiteral(p, i, "false")
	case typeNull:
		return validLiteral(p, i, "null")
	}
	return -1
}

// validMembers is validEnd for an object. It calls fn with each member that is valid, unless
// fn is nil.
func validMembers(p []byte, i int, fn func(name, value []byte)) int {
	if i = pastBlanks(p, i+1); i < len(p) && p[i] == '}' {
		return i + 1
	}
	for i < len(p) && p[i] == '"' {
		name := i
		if i = validString(p, i); i < 0 {
			return -1
		}
		nameEnd := i
		if i = pastBlanks(p, i); i >= len(p) || p[i] != ':' {
			return -1
		}
		value := pastBlanks(p, i+1)
		if i = validEnd(p, value); i < 0 {
			return -1
		}
		if fn != nil {
			fn(unquote(p[name:nameEnd]), p[value:i])
		}
		var more bool
		if i, more = validMore(p, i, '}'); !more {
			return i
		}
	}
	return -1
}

// validElements is validEnd for an array, with fn as for validMembers.
func validElements(p []byte, i int, fn func(value []byte)) int {
	if i = pastBlanks(p, i+1); i < len(p) && p[i] == ']' {
		return i + 1
	}
	for {
		value := i
		if i = validEnd(p, i); i < 0 {
			return -1
		}
		if fn != nil {
			fn(p[value:i])
		}
		var more bool
		if i, more = validMore(p, i, ']'); !more {
			return i
		}
	}
}

// validMore passes what stands behind a member or an element. It returns where the next one
// begins if there are more, else where the object or array ends, -1 if it is not valid.
func validMore(p []byte, i int, closing byte) (next int, more bool) {
	if i = pastBlanks(p, i); i < len(p) {
		switch p[i] {
		case ',':
			return pastBlanks(p, i+1), true
		case closing:
			return i + 1, false
		}
	}
	return -1, false
}

// validString is validEnd for a string.
func validString(p []byte, i int) int {
	for i++; ; {
		if i = reqPlainRun(p, i, len(p)); i == len(p) {
			return -1
		}
		switch p[i] {
		case '"':
			return i + 1
		case '\\':
			n, _ := reqEscape(p[i:])
			if n == 0 {
				return -1
			}
			i += n
		default: // a control character
			return -1
		}
	}
}

// validNumber reads by the grammar of RFC 8259, section 6, and returns where the number at i
// ends, or what is wrong with it stands.
func validNumber(b []byte, i int) (end int, ok bool) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, ok = validDigits(b, i); !ok {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		if i, ok = validDigits(b, i+1); !ok {
			return i, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return validDigits(b, i)
	}
	return i, true
}

// validDigits returns where the digits at i end; ok is false if there are none.
func validDigits(b []byte, i int) (end int, ok bool) {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i, i > start
}

func validLiteral(p []byte, i int, literal string) int {
	if len(p)-i < len(literal) || string(p[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}

// pastBlanks returns where the next byte that is no blank stands. Most bodies have none.
func pastBlanks(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' {
		return i
	}
	return pastManyBlanks(b, i)
}

func pastManyBlanks(b []byte, i int) int {
	for i < len(b) && class[b[i]]&blank != 0 {
		i++
	}
	return i
}

// plainEnd returns where the quote stands that ends the string that p[i] is in; -1 if the
// string has escapes or control characters, or goes on behind p.
func plainEnd(p []byte, i int) int {
	if i = reqPlainRun(p, i, len(p)); i < len(p) && p[i] == '"' {
		return i
	}
	return -1
}

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
		return validNumber(p, i)
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
		if i = pastBlanks(p, i); i >= len(p) {
			return -1
		}
		switch p[i] {
		case ',':
			i = pastBlanks(p, i+1)
		case '}':
			return i + 1
		default:
			return -1
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
		if i = pastBlanks(p, i); i >= len(p) {
			return -1
		}
		switch p[i] {
		case ',':
			i = pastBlanks(p, i+1)
		case ']':
			return i + 1
		default:
			return -1
		}
	}
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

// validNumber is validEnd for a number.
func validNumber(p []byte, i int) int {
	if p[i] == '-' {
		i++
	}
	whole := pastDigits(p, i)
	if whole == i || p[i] == '0' && whole > i+1 {
		return -1
	}
	if i = whole; i < len(p) && p[i] == '.' {
		fraction := pastDigits(p, i+1)
		if fraction == i+1 {
			return -1
		}
		i = fraction
	}
	if i < len(p) && p[i]|0x20 == 'e' {
		if i++; i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		exponent := pastDigits(p, i)
		if exponent == i {
			return -1
		}
		i = exponent
	}
	return i
}

func validLiteral(p []byte, i int, literal string) int {
	if len(p)-i < len(literal) || string(p[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}

func pastBlanks(p []byte, i int) int {
	for i < len(p) && class[p[i]]&blank != 0 {
		i++
	}
	return i
}

func pastDigits(p []byte, i int) int {
	for i < len(p) && p[i] >= '0' && p[i] <= '9' {
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

package usage

// members calls fn with each member of raw JSON, its name decoded, and reports whether raw
// is a valid object. Until that is known fn may have been called: where the answer is no,
// what it did must be forgotten. Of a name that comes twice, the last one counts, so fn sets
// and does not add. Both slices are valid until fn returns.
func members(raw []byte, fn func(name, value []byte)) bool {
	if kindOf(raw) != typeObject {
		return false
	}
	end := validMembers(raw, 0, fn)
	return end > 0 && pastBlanks(raw, end) == len(raw)
}

// validObject returns raw if it is a valid object, nil if not: for who could not forget.
func validObject(raw []byte) []byte {
	if !members(raw, nil) {
		return nil
	}
	return raw
}

// elements calls fn with each element of an array, or the value of each member of an
// object; it does so too with what comes before a mistake.
func elements(raw []byte, fn func(value []byte)) {
	switch kindOf(raw) {
	case typeArray:
		validElements(raw, 0, fn)
	case typeObject:
		validMembers(raw, 0, func(_, value []byte) { fn(value) })
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

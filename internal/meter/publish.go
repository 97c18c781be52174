package meter

import "reflect"

// publish makes variables what those behind are. It writes what differs, and nothing where
// nothing does.
func publish(vars, by map[string]any) {
	for name, v := range by {
		if old, ok := vars[name]; !ok || !identical(old, v) {
			vars[name] = v
		}
	}
	if len(vars) == len(by) {
		return // there is no other name in there
	}
	for name := range vars {
		if _, ok := by[name]; !ok {
			delete(vars, name)
		}
	}
}

// identical tells whether two values are certain to be the same. Variables may be of types
// that cannot be compared, such as maps; those are the same where they are one piece of
// memory.
func identical(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case nil:
		return b == nil
	}
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if !w.IsValid() || v.Type() != w.Type() {
		return false
	}
	switch v.Kind() {
	case reflect.Map:
		return v.UnsafePointer() == w.UnsafePointer()
	case reflect.Slice:
		return v.UnsafePointer() == w.UnsafePointer() && v.Len() == w.Len() && v.Cap() == w.Cap()
	default:
		return v.Type().Comparable() && equal(a, b)
	}
}

// equal compares two values, which panics where a field holds what cannot be compared. To
// look at each field beforehand would allocate memory for each.
func equal(a, b any) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}

package meter

import "reflect"

// publish makes variables what those behind are. It writes what differs, and nothing where
// nothing does.
func publish(vars, by map[string]any) { align(vars, by, identical) }

// align makes a map what another one is. It keeps the map, which others hold, and writes
// only what is not the same.
func align[V any](m, by map[string]V, same func(a, b V) bool) {
	for name, v := range by {
		if old, ok := m[name]; !ok || !same(old, v) {
			m[name] = v
		}
	}
	if len(m) == len(by) {
		return // there is no other name in there
	}
	for name := range m {
		if _, ok := by[name]; !ok {
			delete(m, name)
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

package memory

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type element struct {
	at    int64
	place int
}

func (e *element) due() int64   { return e.at }
func (e *element) moved(to int) { e.place = to }

func TestHeapKeepsTheFirstDueOnTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap[*element]
		var in []*element
		some := func(t *rapid.T) *element {
			if len(in) == 0 {
				t.Skip("empty")
			}
			return rapid.SampledFrom(in).Draw(t, "element")
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				e := &element{at: rapid.Int64Range(0, 20).Draw(t, "due")}
				in = append(in, e)
				h.push(e)
			},
			"fix": func(t *rapid.T) {
				e := some(t)
				e.at = rapid.Int64Range(0, 20).Draw(t, "due")
				h.fix(e.place)
			},
			"remove": func(t *rapid.T) {
				e := some(t)
				h.remove(e.place)
				if e.place != -1 {
					t.Errorf("removed, but in place %d", e.place)
				}
				in = slices.DeleteFunc(in, func(x *element) bool { return x == e })
			},
			"": func(t *rapid.T) {
				if len(h) != len(in) {
					t.Fatalf("%d elements, want %d", len(h), len(in))
				}
				for i, e := range h {
					if e.place != i {
						t.Errorf("element %d takes itself to be in place %d", i, e.place)
					}
					if i > 0 && h[(i-1)/2].at > e.at {
						t.Errorf("element %d is due before the one above", i)
					}
				}
			},
		})
	})
}

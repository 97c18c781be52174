package memory

// item is an element of a heap. It knows its place there, so that it can be
// moved and removed at any time.
type item interface {
	// due is what the heap is ordered by: Unix milliseconds, least first.
	due() int64
	// moved tells the element its new place, -1 outside the heap.
	moved(to int)
}

// heap is a binary heap. Elements that come in order, as most do, are put in
// without being compared to more than one other.
type heap[T item] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// fix puts the element at i in order again after its due time has changed.
func (h heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) remove(i int) {
	old := *h
	x, last := old[i], len(old)-1
	old[i] = old[last]
	var none T
	old[last] = none
	*h = old[:last]
	if i < last {
		h.fix(i)
	}
	x.moved(-1)
}

func (h heap[T]) up(i int) {
	x := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].due() <= x.due() {
			break
		}
		h[i] = h[parent]
		h[i].moved(i)
		i = parent
	}
	h[i] = x
	x.moved(i)
}

// down tells whether the element has moved.
func (h heap[T]) down(i int) bool {
	x, from := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if next := child + 1; next < len(h) && h[next].due() < h[child].due() {
			child = next
		}
		if h[child].due() >= x.due() {
			break
		}
		h[i] = h[child]
		h[i].moved(i)
		i = child
	}
	h[i] = x
	x.moved(i)
	return i != from
}

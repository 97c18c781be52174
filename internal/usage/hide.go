package usage

// maxHeld is how many bytes of an event a Hider holds back at most.
const maxHeld = 64 << 10

// lookAhead is how far a Hider reads before it asks whether it knows enough: choices
// come early in an event.
const lookAhead = 128

// maxHeldBetween is how much memory for held bytes is kept for the next event.
const maxHeldBetween = 1 << 10

// Hider takes out of an event stream the events that carry usage and nothing else:
// those whose data is an object with an empty array of choices and an object of
// usage. Servers send one such event if they are asked for usage, and a client that
// did not ask need not understand it.
//
// Every other byte passes unchanged, and as soon as it is clear that its event stays,
// which is at its first choice. An event of more than 64 KiB stays.
//
// The zero value is ready to use.
type Hider struct {
	events sseReader
	pass   bool // the event stays
	// dropped is set if the last byte read was the CR behind an event that was taken
	// out: an LF that follows is part of it.
	dropped bool
	found   bool // the event has an object
	other   bool // it has another one, or one that stays

	bench *hiderBench // nil between events
	held  []byte      // of the event, what did not pass yet
	out   []byte      // what Pass returns, reused
}

// hiderBench is what an event is looked at with; see workbench.
type hiderBench struct {
	scan scanner
	of   *Hider
}

var hiderBenches = pool[hiderBench]{make: func() *hiderBench {
	b := &hiderBench{}
	b.scan = newScanner(hiderPositions, func(d *document) { b.of.look(d) })
	return b
}}

// hiderPositions are what a Hider looks at.
var hiderPositions, hiderSlots = func() (*tree, []int32) {
	t := newTree()
	slots := t.add([]position{
		hideChoices: {"choices", mark},
		hideChoice:  {"choices[]", mark},
		hideUsage:   {"usage", mark},
		hideError:   {"error", mark},
	})
	return t, slots
}()

const (
	hideChoices = iota
	hideChoice
	hideUsage
	hideError
)

// Passes reports whether all of p may go on as it is, as most of a stream may; p has
// then been read. If not, it is Filter's.
func (h *Hider) Passes(p []byte) bool {
	return len(p) > 0 && h.stays(p) == len(p)
}

// Pass returns what of the stream may pass after p has come, which is valid until the next
// call, and what of p is left to be read of the same stream after u: that which may be taken
// out has to be looked at twice.
func (h *Hider) Pass(u *Run, p []byte) (out, unread []byte) {
	if unread = u.Read(p); len(unread) == 0 || h.Passes(unread) {
		return p, unread
	}
	h.out = h.Filter(append(h.out[:0], p[:len(p)-len(unread)]...), unread)
	return h.out, unread
}

// Filter appends to dst what of the stream may pass after p has come, and returns it.
// It keeps nothing of p and neither blocks nor fails.
func (h *Hider) Filter(dst, p []byte) []byte {
	n := h.stays(p)
	dst, p = append(dst, p[:n]...), p[n:]
	for len(p) > 0 {
		token, n, data := h.events.next(p)
		read := p[:n]
		p = p[n:]
		dropped := h.dropped
		h.dropped = false
		switch token {
		case sseSecondHalf:
			if !dropped {
				dst = h.loose(dst, read)
			}
		case sseComment:
			dst = h.loose(dst, read)
		case sseEvent:
			if h.ends() {
				h.dropped = read[n-1] == '\r'
			} else {
				dst = append(append(dst, h.held...), read...)
			}
			if h.held = h.held[:0]; cap(h.held) > maxHeldBetween {
				h.held = nil
			}
		case sseData:
			h.feed(data)
			dst = h.hold(dst, read)
		case sseUnknown:
			h.pass = true
			dst = h.hold(dst, read)
		default:
			dst = h.hold(dst, read)
		}
	}
	return dst
}

// Flush appends to dst what is held back, at the end of the stream, and returns it. An
// event that is whole but for the blank line behind it is treated like any other.
func (h *Hider) Flush(dst []byte) []byte {
	if !h.ends() {
		dst = append(dst, h.held...)
	}
	h.held = nil
	h.dropped = false
	return dst
}

// hold takes bytes of the event.
func (h *Hider) hold(dst, p []byte) []byte {
	h.pass = h.pass || len(h.held)+len(p) > maxHeld
	if h.pass {
		dst = append(append(dst, h.held...), p...)
		h.held = h.held[:0]
		return dst
	}
	h.held = append(h.held, p...)
	return dst
}

// loose takes bytes that are part of an event only where they stand within it: in
// front of it they pass.
func (h *Hider) loose(dst, p []byte) []byte {
	if len(h.held) == 0 {
		return append(dst, p...)
	}
	return h.hold(dst, p)
}

// feed looks at data of the event, and decides as early as it can that it stays.
func (h *Hider) feed(data []byte) {
	if h.pass {
		return
	}
	if h.bench == nil {
		h.bench = hiderBenches.borrow()
		h.bench.of = h
	}
	s := &h.bench.scan
	for len(data) > 0 && !h.pass {
		n := min(len(data), lookAhead)
		s.feed(data[:n])
		data = data[n:]
		h.pass = h.other || s.stray || s.state == brokenDocument ||
			s.doc.last[hiderSlots[hideChoice]] != 0
	}
}

// look takes an object of the event's data.
func (h *Hider) look(d *document) {
	v := view{d, hiderSlots}
	usageOnly := v.kind(hideChoices) == typeArray && v.kind(hideChoice) == typeAbsent &&
		v.kind(hideUsage) == typeObject &&
		(v.kind(hideError) == typeAbsent || v.kind(hideError) == typeNull)
	if !usageOnly || h.found {
		h.other = true
	}
	h.found = true
}

// ends takes the end of the event and reports whether it is taken out.
func (h *Hider) ends() bool {
	h.events.nextEvent()
	cut := false
	if b := h.bench; b != nil {
		cut = b.scan.end()
		b.scan.course = course{}
		h.bench, b.of = nil, nil
		hiderBenches.giveBack(b)
	}
	hide := !h.pass && !cut && h.found && !h.other
	h.pass, h.found, h.other = false, false, false
	return hide
}

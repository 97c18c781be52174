package usage

// workbench is what a document is read with: a scanner, with room for all that the
// families look for. A stream needs it for some microseconds an event, and nothing of it
// in between, so all share a few that stay in the processor's cache.
type workbench struct {
	scan  scanner
	tally *tally // of whom it has been lent to
}

var workbenches = pool[workbench]{make: func() *workbench {
	b := &workbench{}
	b.scan = newScanner(responsePositions, func(d *document) { extract(d, b.tally) })
	return b
}}

// borrow has r read on at a workbench. It has one already in the middle of a document.
func (r *Response) borrow() *scanner {
	if r.bench == nil {
		r.bench = workbenches.borrow()
		r.bench.tally = &r.tally
		r.bench.scan.course = r.course
	}
	return &r.bench.scan
}

// giveBack ends the use of the workbench, unless r is in the middle of something.
func (r *Response) giveBack() {
	b := r.bench
	if b == nil || !b.scan.idle() {
		return
	}
	r.course = b.scan.course
	r.bench, b.tally = nil, nil
	b.scan.doc.shrink()
	workbenches.giveBack(b)
}

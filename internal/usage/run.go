package usage

// Run is where events of a stream are read that say nothing but more of the text that those
// before them have said, as nearly all do: where each has the shape of the one before. A
// Response lends its shape to the run of who writes to it, and takes back what has been read.
//
// It is small, and stands beside whatever else an event needs. Between two events of a stream
// hundreds of others pass, and what is read of memory then is what an event costs.
//
// The zero value reads nothing. A Run is used by one goroutine at a time.
type Run struct {
	shape  *shape // nil where the Response has to look
	events int64
	text   int64 // bytes, decoded
	size   int64 // bytes
}

// Read reads the events that the next piece of the body begins with, as far as they go on with
// the run, and returns what is left of p, for [Response.WriteRest]. No Hider takes out any that
// it reads.
func (u *Run) Read(p []byte) (rest []byte) {
	for u.shape != nil && len(p) > 0 {
		n, text := u.shape.match(p)
		if n == 0 {
			u.shape = nil
			break
		}
		u.events++
		u.text += text
		u.size += int64(n)
		p = p[n:]
	}
	return p
}

// WriteRest is Write for what is left of the next piece of a body after u has read it.
func (r *Response) WriteRest(u *Run, p []byte) {
	r.Join(u)
	r.Write(p)
	if r.shape != nil && r.unshaped == 0 && r.framing == framedEvents && r.decode == nil && !r.closed {
		u.shape, r.shape = r.shape, nil
	}
}

// Join adds what u has read, which begins anew. It must be called before Close.
func (r *Response) Join(u *Run) {
	r.body += u.size
	r.tally.repeat(u.events, u.text)
	if u.shape != nil {
		r.shape = u.shape
	}
	*u = Run{}
}

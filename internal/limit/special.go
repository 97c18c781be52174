package limit

// special is what few calls need of an entry.
type special struct {
	media     media
	kind      string     // what the config calls the model's kind
	models    []string   // the normal names of a call that names several
	shares    []share    // by rule, of such a call
	idle      []bool     // by rule: nothing is asked of it; nil if of all something is
	charged   []int64    // by rule, while the call was under way; nil if nothing was
	newcomers *newcomers // its models that are new; nil if none are
}

// specially returns what is special about the call, for more to be noted.
func (e *entry) specially() *special {
	if e.special == nil {
		e.special = new(special)
	}
	return e.special
}

// media is what the call has of pictures, recordings and videos.
func (e *entry) media() media {
	if e.special == nil {
		return media{}
	}
	return e.special.media
}

// models are the normal names of a call that names several, the one that it asks for first;
// of others there are none.
func (e *entry) models() []string {
	if e.special == nil {
		return nil
	}
	return e.special.models
}

// shares are for which models the rules count, of a call that names several. It may have
// none for rules at the end, which count every call then.
func (e *entry) shares() []share {
	if e.special == nil {
		return nil
	}
	return e.special.shares
}

// newcomers are the models of the call that are new, nil if none are.
func (e *entry) newcomers() *newcomers {
	if e.special == nil {
		return nil
	}
	return e.special.newcomers
}

// idles notes that nothing is asked of a rule, so that nothing is said of it either.
func (e *entry) idles(i int) {
	s := e.specially()
	if s.idle == nil {
		s.idle = make([]bool, len(e.rules))
	}
	s.idle[i] = true
}

// asks tells whether the call wants something of a rule that counts media.
func (e *entry) asks(i int) bool {
	return e.special == nil || i >= len(e.special.idle) || !e.special.idle[i]
}

// paid is what has been charged of a rule while the call was under way.
func (e *entry) paid(i int) int64 {
	if e.special == nil || e.special.charged == nil {
		return 0
	}
	return e.special.charged[i]
}

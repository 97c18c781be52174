package meter

// carried is what variables of a request lead to, for all calls of it. It is the same piece
// of memory from the first call on, so that another one, of a route for errors, writes
// nothing into the map of variables, which what the first has left at work may be reading.
type carried struct {
	call         *Call // the last one
	cost, status text  // what it cost, if that is known
}

// text is a string that may change. For placeholders, matchers and expressions it is as any
// other.
type text string

// String implements fmt.Stringer.
func (t *text) String() string { return string(*t) }

// callVar is the variable in which a request carries its Call.
const callVar = "llm.call"

// carriedBy finds what the variables of a request lead to; nil if there was no call.
func carriedBy(vars Vars) *carried {
	at, _ := vars[callVar].(*carried)
	return at
}

// publish puts cost and status among variables, unless they are there.
func (at *carried) publish(vars Vars) {
	if has, ok := vars[VarCost].(*text); !ok || has != &at.cost {
		vars[VarCost], vars[VarCostStatus] = &at.cost, &at.status
	}
}

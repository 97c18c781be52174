package usage

// tools reads the declared tools: all of them is shown to the model, and those that
// the vendor runs add what nobody knows beforehand.
func (s *reqScanner) tools(depth int) bool {
	if s.peek() == '{' && depth < reqGroupDepth && s.r.groupsTools() {
		return s.tool(depth + 1) // Google takes an element for an array of one
	}
	if s.peek() != '[' {
		n, ok := s.compact(depth)
		s.r.TextBytes += n
		return ok
	}
	if !s.enter(depth) {
		return false
	}
	s.r.TextBytes += 2
	for first := true; s.element(first); first = false {
		if !s.tool(depth + 1) {
			return false
		}
	}
	return s.bad == nil
}

// reqGroupDepth is where the elements of the top member for tools lie.
const reqGroupDepth = 3

// groupsTools tells whether the elements there are groups, named by what is in them.
func (r *Request) groupsTools() bool { return r.API == GeminiGenerate || r.API == GeminiStream }

func (s *reqScanner) tool(depth int) bool {
	r := s.r
	r.Tools++
	if s.peek() != '{' {
		n, ok := s.compact(depth)
		r.TextBytes += n
		return ok
	}
	if !s.enter(depth) {
		return false
	}
	r.TextBytes += 3
	group := r.groupsTools() && depth == reqGroupDepth
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return s.bad == nil
		}
		r.TextBytes += int64(s.named) + 4
		name, _ := s.name(raw)
		switch {
		case string(name) == "tools":
			if !s.tools(depth + 1) {
				return false
			}
		case group:
			client := reqClientGroup(name)
			if !s.tools(depth + 1) {
				return false
			}
			if !client && !s.wasNull() {
				r.external("server tools")
			}
		case string(name) == "type" && s.peek() == '"':
			raw, size, ok := s.str()
			if !ok {
				return false
			}
			r.TextBytes += int64(size) + 2
			r.drawingTool(raw)
			if !reqClientTool(raw) {
				r.external("server tools")
			}
		default:
			n, ok := s.toolSetting(name, depth+1)
			if !ok {
				return false
			}
			r.TextBytes += n
		}
	}
}

// reqClientTool tells the types of tools that the client runs itself, so that all
// they return is in the next request.
func reqClientTool(name []byte) bool {
	switch string(name) {
	case "function", "custom", "namespace", "local_shell", "apply_patch", "computer":
		return true
	}
	for _, p := range [...]string{"bash_", "text_editor_", "computer_", "memory_"} {
		if len(name) > len(p) && string(name[:len(p)]) == p {
			return true
		}
	}
	return false
}

package usage

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"
)

// reqMaxModels is how many models a request may name beside the main one.
const reqMaxModels = 64

// reqModelsDepth is how deep within a member models are looked for. What routers read
// lies no deeper.
const reqModelsDepth = 8

// reqNaming is how a member names models.
type reqNaming uint8

const (
	reqNamesNone  reqNaming = iota
	reqNamesAll             // its strings are models, and those of its objects that are called so
	reqNamesBelow           // models are named by members of what it holds
	reqNamesRoute           // a model, or a word of its own
)

// reqNamingOf tells which members name models that a call may end at instead of the
// main one, or use on its way: as fallbacks, as a choice of a router, or by a name that
// overrides the main one. Routers keep inventing such members, so the ending of the
// name decides.
func reqNamingOf(folded []byte) reqNaming {
	switch string(folded) {
	case "model_list", "engine", "deployment_id":
		return reqNamesAll
	case "plugins", "provideroptions", "provider_options", "routingconfig", "routing_config":
		return reqNamesBelow
	case "route":
		return reqNamesRoute
	}
	if reqEndsAsModel(folded) {
		return reqNamesAll
	}
	return reqNamesNone
}

// namingOf is reqNamingOf for a name as it is written.
func (s *reqScanner) namingOf(raw []byte) reqNaming {
	if word := reqWordOf(raw); word != nil {
		return word.how
	}
	name, _ := s.name(raw)
	return reqNamingOf(name)
}

func reqEndsAsModel(folded []byte) bool {
	if len(folded) < len("model") {
		return false
	}
	// The last letter tells most names apart.
	switch folded[len(folded)-1] {
	case 'l':
		return bytes.HasSuffix(folded, []byte("model"))
	case 's':
		return bytes.HasSuffix(folded, []byte("models")) || bytes.HasSuffix(folded, []byte("fallbacks"))
	case 'e':
		return bytes.HasSuffix(folded, []byte("model_name")) || bytes.HasSuffix(folded, []byte("modelname"))
	case 'd':
		return bytes.HasSuffix(folded, []byte("model_id")) || bytes.HasSuffix(folded, []byte("modelid"))
	}
	return false
}

// note notes the models and modalities in the value of a member, which begins at start and
// has just been read.
func (s *reqScanner) note(how reqNaming, modalities bool, start int) bool {
	if modalities {
		s.r.draws(s.b[start:s.i])
	}
	return how == reqNamesNone || s.modelsIn(s.b[start:s.i], how)
}

// modelsIn notes the models that a value names, which is known to be valid JSON.
func (s *reqScanner) modelsIn(raw []byte, how reqNaming) bool {
	switch raw[0] {
	case '"', '[', '{':
	default:
		return true
	}
	v := gjson.ParseBytes(raw)
	if how == reqNamesRoute && v.Str == "fallback" {
		return true
	}
	return s.modelsOf(v, how != reqNamesBelow, reqModelsDepth)
}

// modelsOf notes the models within v; all is set if its strings are some.
func (s *reqScanner) modelsOf(v gjson.Result, all bool, depth int) bool {
	if depth == 0 {
		return true
	}
	ok := true
	switch {
	case v.Type == gjson.String:
		return !all || s.otherModel(v.Str)
	case v.IsArray():
		v.ForEach(func(_, e gjson.Result) bool {
			ok = s.modelsOf(e, all, depth-1)
			return ok
		})
	case v.IsObject():
		v.ForEach(func(name, e gjson.Result) bool {
			ok = s.modelsOf(e, reqModelMember(name.Str, &e, all), depth-1)
			return ok
		})
	}
	return ok
}

// reqModelMember tells whether the strings of a member are models; among is set if the
// object around it stands for one, or is a map from models to their fallbacks.
func reqModelMember(name string, v *gjson.Result, among bool) bool {
	folded := bytes.ToLower([]byte(name))
	if reqNamingOf(folded) == reqNamesAll {
		return true
	}
	if !among {
		return false
	}
	switch string(folded) {
	case "id", "name", "slug":
		return v.Type == gjson.String
	}
	return v.IsArray() && reqFieldOf(folded) == reqUnknown
}

// otherModel notes a model. Too many of them are refused: nobody needs them, and each is
// to be looked up.
func (s *reqScanner) otherModel(model string) bool {
	s.bad = s.r.addModel(model)
	return s.bad == nil
}

func (r *Request) addModel(model string) *BadRequest {
	if model == "" || slices.Contains(r.OtherModels, model) {
		return nil
	}
	if len(r.OtherModels) == reqMaxModels {
		return &BadRequest{Message: "more than " + strconv.Itoa(reqMaxModels) + " models are named"}
	}
	r.OtherModels = append(r.OtherModels, model)
	return nil
}

// settleModels leaves out the main model, which may have come behind the others.
func (r *Request) settleModels() {
	if len(r.OtherModels) == 0 {
		return
	}
	main, body := r.Model, r.BodyModel
	r.OtherModels = slices.DeleteFunc(r.OtherModels, func(m string) bool { return m == main || m == body })
	if len(r.OtherModels) == 0 {
		r.OtherModels = nil
	}
}

// toolSetting reads a member of a tool and returns its size. Tools that the vendor runs
// name models of their own, beside their type or in their settings. What is called so
// deeper down is part of a schema.
func (s *reqScanner) toolSetting(name []byte, depth int) (size int64, ok bool) {
	if how := reqNamingOf(name); how != reqNamesNone || s.peek() != '{' {
		return s.toolModels(how, depth)
	}
	if !s.enter(depth) {
		return 0, false
	}
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return size + 2, s.bad == nil
		}
		size += int64(s.named) + 4
		n, ok := s.toolModels(s.namingOf(raw), depth+1)
		if !ok {
			return 0, false
		}
		size += n
	}
}

func (s *reqScanner) toolModels(how reqNaming, depth int) (size int64, ok bool) {
	start := s.i
	size, ok = s.compact(depth)
	if ok && how != reqNamesNone {
		ok = s.modelsIn(s.b[start:s.i], how)
	}
	return size, ok
}

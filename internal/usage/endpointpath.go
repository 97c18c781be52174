package usage

import (
	"net/url"
	"strings"
)

// endpointPattern is a row's path, cut into segments.
type endpointPattern struct {
	segs    []string
	subtree bool
	last    string // what the last segment must be, or empty
}

var endpointPatterns = endpointCompile(endpointRows)

func endpointCompile(rows []endpointRow) []endpointPattern {
	ps := make([]endpointPattern, len(rows))
	for i, row := range rows {
		path, subtree := strings.CutSuffix(row.path, "/**")
		p := endpointPattern{segs: strings.Split(path, "/"), subtree: subtree}
		if last := p.segs[len(p.segs)-1]; !subtree && !strings.ContainsAny(last, "*{") {
			p.last = last
		}
		ps[i] = p
	}
	return ps
}

// match compares a path with the pattern and returns the model it names.
func (p *endpointPattern) match(segs []string) (model string, ok bool) {
	if !p.subtree {
		// Most rows end here; lengths are told faster than letters.
		if p.last != "" && (len(segs) == 0 || len(segs[len(segs)-1]) != len(p.last)) {
			return "", false
		}
		return p.matchTail(segs)
	}
	for end := len(p.segs); end <= len(segs); end++ {
		if model, ok = p.matchTail(segs[:end]); ok {
			return model, true
		}
	}
	return "", false
}

func (p *endpointPattern) matchTail(segs []string) (model string, ok bool) {
	i := len(segs) - 1
	for j := len(p.segs) - 1; j >= 0; j-- {
		if i < 0 {
			return "", false
		}
		want := p.segs[j]
		switch {
		case want == "*":
		case want == "{model}":
			model = segs[i]
		case want == "{model+}":
			first := i
			for first > 0 && !strings.EqualFold(segs[first-1], p.segs[j-1]) {
				first--
			}
			model, i = strings.Join(segs[first:i+1], "/"), first
		case strings.HasPrefix(want, "{model}:"):
			colon := strings.LastIndexByte(segs[i], ':')
			if colon < 0 || !strings.EqualFold(segs[i][colon:], want[len("{model}"):]) {
				return "", false
			}
			model = segs[i][:colon]
		case len(segs[i]) != len(want) || !strings.EqualFold(segs[i], want):
			return "", false
		}
		i--
	}
	return model, true
}

// endpointSegments cuts a decoded path into segments in the way of the most
// lenient server: empty ones and "." vanish, ".." climbs (which is reported), a
// backslash is a slash, ";parameters" are cut off and an escape that was escaped
// again is undone. The case stays, for the sake of model names.
//
// A path is odd if servers differ on where it ends or what it is: it has a question
// mark, a number sign, a control character or an escape left in it.
func endpointSegments(segs []string, path string) (cut []string, climbs, odd bool) {
	plain := endpointPlain(path)
	if !plain {
		path, odd = endpointUnescape(path)
	}
	for more := true; more; {
		var seg string
		seg, path, more = strings.Cut(path, "/")
		if !plain {
			seg, _, _ = strings.Cut(seg, ";")
			seg = strings.TrimSpace(seg)
		}
		switch seg {
		case "", ".":
		case "..":
			climbs = true
			segs = segs[:max(0, len(segs)-1)]
		default:
			segs = append(segs, seg)
		}
	}
	return segs, climbs, odd
}

// endpointPlain tells paths of which there is one reading: of letters, digits and what
// stands for nothing else in any server's.
func endpointPlain(path string) bool {
	for i := range len(path) {
		c := path[i]
		if class[c]&scalar == 0 && c != '/' && c != '_' && c != ':' {
			return false
		}
	}
	return true
}

// endpointUnescape is a path with escapes that were escaped again undone and slashes for
// backslashes.
func endpointUnescape(path string) (plain string, odd bool) {
	for range 3 {
		if strings.IndexByte(path, '%') < 0 {
			break
		}
		plain, err := url.PathUnescape(path)
		if err != nil {
			break
		}
		path = plain
	}
	odd = strings.ContainsFunc(path, endpointOdd)
	return strings.ReplaceAll(path, `\`, "/"), odd
}

func endpointOdd(r rune) bool {
	return r == '?' || r == '#' || r == '%' || r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// endpointCut is what is left of an odd path for a server that takes it to end at a
// question mark or a number sign, escaped as it was.
func endpointCut(path string) (cut string, ok bool) {
	for range 3 {
		if i := strings.IndexAny(path, "?#"); i >= 0 {
			return path[:i], true
		}
		plain, err := url.PathUnescape(path)
		if err != nil {
			break
		}
		path = plain
	}
	i := strings.IndexAny(path, "?#")
	return path[:max(i, 0)], i >= 0
}

// Spellings are the paths that lenient servers may take a decoded path for, beside itself:
// as [Identify] reads it, and cut where it may end for a server that undoes escapes again.
// There are none if path is written as plainly as it can be.
func Spellings(path string) []string {
	var all []string
	add := func(p string) (odd bool) {
		segs, _, odd := endpointSegments(nil, p)
		if plain := "/" + strings.Join(segs, "/"); plain != path {
			all = append(all, plain)
		}
		return odd
	}
	if add(path) {
		if cut, ok := endpointCut(path); ok {
			add(cut)
		}
	}
	return all
}

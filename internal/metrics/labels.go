package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is what all share that have no label value of their own.
const Other = "other"

const (
	// modelsMost is how many families of models are told apart.
	modelsMost = 200
	// namesMost is how many names are remembered together with their family; of
	// others it is worked out anew with each call.
	namesMost = 2000
	// nameMost is the longest name that is looked at, in bytes. All in use are far
	// shorter.
	nameMost = 200
	// runMost is the longest run of letters and digits in a label. Keys and hashes have
	// longer ones, names of models do not.
	runMost = 24
)

// model is a family of models, as labels have it.
type model struct {
	label              string
	expected, reported [estimates]prometheus.Counter
}

// models are the families that are told apart, by a bound.
type models struct {
	set   *Set
	other *model

	mu       sync.RWMutex
	families map[string]*model
	names    map[string]*model // by the name as it came
}

func (m *models) init(s *Set) {
	m.set = s
	m.families, m.names = make(map[string]*model), make(map[string]*model)
	m.other = m.make(Other)
	m.families[Other] = m.other
}

func (m *models) make(label string) *model {
	f := &model{label: label}
	for i, k := range []string{"input", "output"} {
		f.expected[i] = m.set.expected.WithLabelValues(label, k)
		f.reported[i] = m.set.reported.WithLabelValues(label, k)
	}
	return f
}

// of returns the family of a model. A new one is told apart only if it is proven: an
// answer reported tokens of it. Anybody can ask for any name, and must not use up the
// room of those that exist.
func (m *models) of(name string, proven bool) *model {
	m.mu.RLock()
	f := m.names[name]
	m.mu.RUnlock()
	if f != nil {
		return f
	}
	label := Family(name)

	m.mu.RLock()
	f = m.families[label]
	room := len(m.names) < namesMost
	full := len(m.families) > modelsMost // other is not of their number
	m.mu.RUnlock()
	switch {
	case f == nil && (full || !proven):
		return m.other
	case f == m.other:
		return f // a name that nobody would miss
	case f != nil && (!room || !proven):
		return f
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if f = m.families[label]; f == nil {
		if len(m.families) > modelsMost {
			return m.other
		}
		f = m.make(label)
		m.families[label] = f
	}
	if len(m.names) < namesMost {
		m.names[strings.Clone(name)] = f // the name may be a part of a body, which must not live on with it
	}
	return f
}

// Family is the name of a model without what changes from week to week or from one
// vendor's spelling to another's: the path before it, a region and a maker in the
// manner of Bedrock, the ids of a fine-tuned model, a date and a revision at its end.
// It is [Other] for what is no name of a model, such as something that looks like a
// key.
func Family(name string) string {
	if len(name) > nameMost {
		return Other
	}
	name = strings.ToLower(name)
	name = name[strings.LastIndexByte(name, '/')+1:]
	if tuned, ok := strings.CutPrefix(name, "ft:"); ok {
		base, _, _ := strings.Cut(tuned, ":")
		name = "ft:" + family(base)
	} else {
		name = family(name)
	}
	if !presentable(name) {
		return Other
	}
	return name
}

func family(name string) string {
	// us.anthropic.claude-sonnet-4-20250514-v1:0
	for _, p := range vendors {
		name = strings.TrimPrefix(name, p)
	}
	if i := strings.LastIndex(name, "-v"); i > 0 {
		if major, minor, ok := strings.Cut(name[i+2:], ":"); ok && digits(major) && digits(minor) {
			name = name[:i]
		}
	}
	if before, date, ok := strings.Cut(name, "@"); ok && (digits(date) || date == "latest" || date == "default") {
		return before // claude-sonnet-4@20250514
	}
	if n := len(name) - len("-2025-08-07"); n > 0 && isDate(name[n:]) {
		return name[:n]
	}
	if n := len(name) - len("-20250514"); n > 0 && name[n] == '-' && digits(name[n+1:]) && strings.HasPrefix(name[n+1:], "20") {
		return name[:n]
	}
	return name
}

// vendors are what stands before a name on Bedrock, in this order.
var vendors = []string{
	"us-gov.", "us.", "eu.", "apac.", "jp.", "au.", "global.",
	"anthropic.", "amazon.", "meta.", "mistral.", "cohere.", "ai21.", "deepseek.", "openai.", "qwen.",
}

func isDate(s string) bool {
	return s[0] == '-' && digits(s[1:5]) && s[5] == '-' && digits(s[6:8]) && s[8] == '-' && digits(s[9:])
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// presentable tells whether a name can be a label: no secret, nothing that breaks a
// scrape.
func presentable(name string) bool {
	if name == "" || len(name) > 64 || strings.HasPrefix(name, "sk-") {
		return false
	}
	run := 0
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			if run++; run > runMost {
				return false
			}
		case strings.IndexByte("-_.:+@", c) >= 0:
			run = 0
		default:
			return false
		}
	}
	return true
}

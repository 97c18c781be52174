package llmapp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Instance is a limiter of the config.
type Instance interface {
	// ID is by what its counters are known.
	ID() string
	// Directive is the handler's name.
	Directive() string
	// Name is what the config calls it, empty for an unnamed one.
	Name() string
	// Pool is what it counts together with others in, empty for none.
	Pool() string
	// Shared tells whether all callers count in one counter.
	Shared() bool
	// Key is what it counts apart by, as the config says it.
	Key() []string
	// Mode is how it admits.
	Mode() string
	// Rules are its limits.
	Rules() []RuleInfo
}

// RulesByConsumer is an instance whose rules differ from consumer to consumer.
type RulesByConsumer interface {
	Instance
	// RulesOf are the rules of a consumer, one for each counter that it may have.
	RulesOf(consumer string) []RuleInfo
}

// RulesByModel is an instance some of whose rules count each model apart.
type RulesByModel interface {
	RulesByConsumer
	// RulesOfModel are the rules that count a consumer's calls of a model.
	RulesOfModel(consumer, model string) []RuleInfo
	// RuleOfID is the rule of the counter that the store knows by that name, of whatever
	// group and model it is. ok is false if the config has none.
	RuleOfID(id string) (info RuleInfo, ok bool)
}

// RuleInfo is a rule as operators know it.
type RuleInfo struct {
	Words    string // without the amount: `tokens per hour`, `images per day (qwen*)`
	Unit     string
	Window   string // as the config says it: `hour`, `rolling 1h`; empty for calls at one time
	Limit    int64
	Shadow   bool
	Store    *store.Rule
	Group    string   // whose members it counts; empty at the top level
	Models   []string // globs of the models that it counts; nil for all
	PerModel bool     // each model has a counter of its own
	Type     string   // what the config calls the kind of the models
	Model    string   // whose counter it is; empty where that is none model's own
}

// Register makes an instance known. Two that would count in the same counters are
// refused, unless they say that they share a pool.
func (a *App) Register(in Instance) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.instances {
		if other.ID() != in.ID() {
			continue
		}
		switch {
		case in.Pool() != "" && other.Pool() != "":
			if d := difference(other, in); d != "" {
				return fmt.Errorf("share %s: all instances of a pool need the same rules, and %s", in.Pool(), d)
			}
			continue // equal to one is equal to all
		case in.Pool() != "" || other.Pool() != "":
			return fmt.Errorf("%q is the name of an instance and of a pool", in.ID())
		case in.Name() != "":
			return fmt.Errorf("the name %q stands here twice; instances that are to count together say `share %s`", in.Name(), in.Name())
		default:
			return fmt.Errorf("two unnamed %s count by the same key (%s); give each a name", in.Directive(), keyWords(in))
		}
	}
	a.instances = append(a.instances, in)
	return nil
}

func keyWords(in Instance) string {
	if in.Shared() {
		return "shared by all callers"
	}
	return strings.Join(in.Key(), " ")
}

// difference says what differs between two instances of a pool.
func difference(a, b Instance) string {
	if a.Directive() != b.Directive() {
		return fmt.Sprintf("one is a %s and one a %s", a.Directive(), b.Directive())
	}
	if !slices.Equal(a.Key(), b.Key()) {
		return "their keys differ"
	}
	if a.Mode() != b.Mode() {
		return fmt.Sprintf("one has mode %s and one %s", a.Mode(), b.Mode())
	}
	ra, rb := a.Rules(), b.Rules()
	if len(ra) != len(rb) {
		return fmt.Sprintf("one has %d and one %d", len(ra), len(rb))
	}
	for i := range ra {
		if ra[i].Words != rb[i].Words || ra[i].Limit != rb[i].Limit || ra[i].Store.Refill != rb[i].Store.Refill || ra[i].Store.ID != rb[i].Store.ID ||
			ra[i].Group != rb[i].Group || ra[i].PerModel != rb[i].PerModel {
			return fmt.Sprintf("`%s` and `%s` differ", ra[i].Words, rb[i].Words)
		}
	}
	return ""
}

// list returns the instances by id, a pool once.
func (a *App) list() []Instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.instances)
	slices.SortStableFunc(all, func(x, y Instance) int { return strings.Compare(x.ID(), y.ID()) })
	return slices.CompactFunc(all, func(x, y Instance) bool { return x.ID() == y.ID() })
}

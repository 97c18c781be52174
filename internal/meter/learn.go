package meter

import (
	"math/bits"
	"strings"
	"sync"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

const (
	// unlearned is what a call is expected to use, in tokens, while nothing is known.
	unlearned = 4096
	// leastExpected is the least output that a call without a cap is expected to have,
	// in tokens.
	leastExpected = 1024
)

const (
	// learnModels bounds the models that are learned apart, on each route; the rest are
	// one.
	learnModels = 500
	// learnEnough is how many calls make a quantile worth using.
	learnEnough = 20
	// learnMost is how many calls are remembered; beyond it all weights are halved,
	// so that what was long ago fades.
	learnMost = 1000
	// modelMax is the longest name of a model that is kept, in bytes. All in use are
	// far shorter.
	modelMax = 200
)

// learned keeps what calls of each model used, by the route they took.
type learned struct {
	mu     sync.RWMutex
	models map[subject]*modelUse
}

// subject is what is learned about; the zero value is all that is past the bound.
type subject struct {
	route route
	model string
}

// of is what is known of a model on a route; nil, which knows nothing, if no call of it
// was counted. To ask keeps nothing: anybody can ask for any name, and only answers prove
// one.
func (l *learned) of(s subject) *modelUse {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if u := l.models[s]; u != nil {
		return u
	}
	if len(l.models) < learnModels && len(s.model) <= modelMax {
		return nil
	}
	return l.models[subject{}]
}

// entry is where to remember what calls of a subject use. Models past the bound share one.
func (l *learned) entry(s subject) *modelUse {
	l.mu.RLock()
	u := l.models[s]
	l.mu.RUnlock()
	if u != nil {
		return u
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.models == nil {
		l.models = make(map[subject]*modelUse)
	}
	if l.models[s] == nil && (len(l.models) >= learnModels || len(s.model) > modelMax) {
		s = subject{}
	}
	if u = l.models[s]; u == nil {
		u = new(modelUse)
		// the name may be a part of the body, which must not live on with it
		s.model = strings.Clone(s.model)
		l.models[s] = u
	}
	return u
}

// modelUse is what the calls of one model on one route used. Nil is a model without calls.
type modelUse struct {
	mu                   sync.Mutex
	input, output, total quantiles
	cost                 quantiles // in picodollars
	rate                 quantiles // in picodollars for each weighted token
	ratio                ratio
}

// add remembers what a call used, and what its prompt was estimated at; 0 where the request
// did not show it all.
func (u *modelUse) add(used *usage.Usage, estimate int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if estimate >= ratioLeast && used.Input > 0 {
		u.ratio.add(estimate, used.Input)
	}
	u.input.add(used.Input)
	u.output.add(used.Output)
	u.total.add(used.Total())
}

// ratio is how prompts compare with their estimates: tokenizers differ, and templates
// and tools add to what the request shows.
type ratio struct {
	weight int64
	sum    int64 // of reported / estimated, in thousandths
}

const (
	// ratioMost is how far off an estimate is taken to be at most, either way.
	ratioMost = 4
	// ratioLeast is the smallest estimate that teaches, in tokens: what a template adds
	// weighs much in short prompts and little in those that cost something.
	ratioLeast = 200
)

// add remembers a call. One teaches as much as any other, and an odd one not too much.
func (q *ratio) add(estimate, reported int64) {
	if q.weight >= learnMost {
		q.weight, q.sum = q.weight/2, q.sum/2
	}
	thousandths := int64(1000 * ratioMost)
	if estimate > reported/ratioMost {
		thousandths = max(reported*1000/estimate, 1000/ratioMost)
	}
	q.weight++
	q.sum += thousandths
}

// corrected is an estimate as it has turned out to be for this model.
func (u *modelUse) corrected(estimate int64) int64 {
	if u == nil {
		return estimate
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ratio.weight < learnEnough {
		return estimate
	}
	mean := u.ratio.sum / u.ratio.weight
	return max(1, estimate/1000*mean+estimate%1000*mean/1000)
}

// expected is what 95 of 100 calls stay under, in tokens; ok is false while too few
// are known.
func (u *modelUse) expected() (input, output, total int64, ok bool) {
	if u == nil {
		return 0, 0, 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total.weight < learnEnough {
		return 0, 0, 0, false
	}
	return u.input.p95(), u.output.p95(), u.total.p95(), true
}

// quantiles is a histogram of amounts with four buckets to a power of two, so
// that a quantile is at most a quarter too high.
type quantiles struct {
	weight  int
	buckets [248]uint16
	// at is the bucket of the quantile, and above how many amounts are in those above it.
	// They follow each amount, since every call asks.
	at, above int
}

func bucketOf(n int64) int {
	if n < 4 {
		return int(max(n, 0))
	}
	e := bits.Len64(uint64(n)) - 1
	return e*4 + int(n>>(e-2)&3) - 4
}

// top is the largest amount in a bucket.
func top(b int) int64 {
	if b < 4 {
		return int64(b)
	}
	e, m := (b+4)/4, int64((b+4)%4)
	return (4+m+1)<<(e-2) - 1
}

func (q *quantiles) add(n int64) {
	if q.weight >= learnMost {
		q.weight = 0
		for i := range q.buckets {
			q.buckets[i] /= 2
			q.weight += int(q.buckets[i])
		}
		q.at, q.above = len(q.buckets)-1, 0
	}
	b := bucketOf(n)
	q.buckets[b]++
	q.weight++
	if b > q.at {
		q.above++
	}
	q.follow()
}

// follow finds the bucket of the quantile, which is near to where it was.
func (q *quantiles) follow() {
	most := q.weight / 20 // that may lie above
	for q.above > most {
		q.at++
		q.above -= int(q.buckets[q.at])
	}
	for q.at > 0 && q.above+int(q.buckets[q.at]) <= most {
		q.above += int(q.buckets[q.at])
		q.at--
	}
}

// p95 is the amount that 95 of 100 calls stay under.
func (q *quantiles) p95() int64 { return top(q.at) }

package meter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestEveryAmountIsInTheBucketWithTheNextLargerTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "amount") >> rapid.IntRange(0, 62).Draw(t, "shift")
		b := bucketOf(n)
		if n > top(b) || b > 0 && n <= top(b-1) {
			t.Fatalf("%d is in bucket %d, from %d to %d", n, b, top(b-1)+1, top(b))
		}
		if float64(top(b)) > float64(n)*1.25 {
			t.Fatalf("%d stands for %d", top(b), n)
		}
	})
	if b := bucketOf(math.MaxInt64); b != len(quantiles{}.buckets)-1 || top(b) != math.MaxInt64 {
		t.Errorf("the largest amount is in bucket %d up to %d", b, top(b))
	}
	if b := bucketOf(-5); b != 0 {
		t.Errorf("a negative amount is in bucket %d", b)
	}
}

func TestQuantileIsAtMostAQuarterTooHigh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.Int64Range(0, 1_000_000), learnEnough, learnMost).Draw(t, "amounts")
		var q quantiles
		for _, n := range amounts {
			q.add(n)
		}
		slices.Sort(amounts)
		exact := amounts[len(amounts)-1-len(amounts)/20]
		got := q.p95()
		if got < exact || float64(got) > 1.25*float64(exact) {
			t.Fatalf("got %d, exactly %d", got, exact)
		}
		under := 0
		for _, n := range amounts {
			if n <= got {
				under++
			}
		}
		if under*100 < len(amounts)*95 {
			t.Fatalf("%d of %d stay under %d", under, len(amounts), got)
		}
	})
}

// The quantile that follows each amount is the one that a count of all buckets finds.
func TestQuantileFollowsWhatIsAdded(t *testing.T) {
	counted := func(q *quantiles) int64 {
		rest := q.weight / 20
		for b := len(q.buckets) - 1; b > 0; b-- {
			if rest -= int(q.buckets[b]); rest < 0 {
				return top(b)
			}
		}
		return 0
	}
	rapid.Check(t, func(t *rapid.T) {
		var q quantiles
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for _, bits := range rapid.SliceOfN(rapid.IntRange(0, 62), 1, 4).Draw(t, "phases") {
			for range rapid.IntRange(1, learnMost).Draw(t, "calls") {
				q.add(random.Int64N(1 << bits))
				if got, want := q.p95(), counted(&q); got != want {
					t.Fatalf("the quantile of %d calls is %d, counted %d", q.weight, got, want)
				}
			}
		}
	})
}

func TestWhatWasLongAgoFades(t *testing.T) {
	var q quantiles
	for range 10_000 {
		q.add(1_000_000)
	}
	if q.weight > learnMost {
		t.Errorf("weight %d", q.weight)
	}
	needed := 0
	for q.p95() > top(bucketOf(100)) {
		q.add(100)
		if needed++; needed > 10*learnMost {
			t.Fatal("the past never fades")
		}
	}
	if needed < learnMost/2 {
		t.Errorf("%d calls were enough to forget", needed)
	}
}

func TestWeightIsTheSumOfTheBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q quantiles
		for _, n := range rapid.SliceOfN(rapid.Int64Range(0, 5000), 0, 4000).Draw(t, "amounts") {
			q.add(n)
		}
		sum := 0
		for _, b := range q.buckets {
			sum += int(b)
		}
		if sum != q.weight || sum > learnMost {
			t.Fatalf("weight %d, sum %d", q.weight, sum)
		}
	})
}

func TestTypicalUseNeedsEnoughCalls(t *testing.T) {
	m := New()
	next := func() *Call {
		return &Call{m: m, figures: new(figures), Request: &usage.Request{Model: "m", Choices: 1}}
	}
	for n := range learnEnough {
		if in, out, total := next().Typical(); in != unlearned || out != unlearned || total != unlearned {
			t.Fatalf("after %d calls: %d, %d, %d", n, in, out, total)
		}
		m.learned.entry(subject{model: "m"}).add(&usage.Usage{Input: 3000, Output: 100}, 0)
	}
	in, out, total := next().Typical()
	if in != top(bucketOf(3000)) || out != top(bucketOf(100)) || total != top(bucketOf(3100)) {
		t.Errorf("got %d, %d, %d", in, out, total)
	}
}

func TestExpectedOutput(t *testing.T) {
	tests := []struct {
		name    string
		learned int64 // output of each call, if not 0
		api     usage.API
		cap     int64
		choices int64
		want    int64
	}{
		{name: "nothing known", choices: 1, want: 1024},
		{name: "a cap", cap: 100, choices: 1, want: 100},
		{name: "a cap for each of several choices", cap: 100, choices: 3, want: 300},
		{name: "a huge cap", cap: 1 << 40, choices: 1, want: 1024},
		{name: "little learned", learned: 10, choices: 1, want: 1024},
		{name: "much learned", learned: 8000, choices: 1, want: top(bucketOf(8000))},
		{name: "much learned and a cap", learned: 8000, cap: 2000, choices: 1, want: 2000},
		{name: "an embedding", learned: 8000, api: usage.OpenAIEmbeddings, choices: 1, want: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			if test.learned > 0 {
				for range learnEnough {
					m.learned.entry(subject{model: "m"}).add(&usage.Usage{Output: test.learned}, 0)
				}
			}
			c := &Call{
				figures: new(figures),
				m:       m, Endpoint: usage.Endpoint{API: test.api},
				Request: &usage.Request{Model: "m", Cap: test.cap, Choices: test.choices},
			}
			if got := c.ExpectedOutput(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestLearnedModelsAreBounded(t *testing.T) {
	var l learned
	for i := range 10 * learnModels {
		l.entry(subject{model: fmt.Sprint("model", i)}).add(&usage.Usage{Output: 5}, 0)
		l.entry(subject{model: strings.Repeat("x", modelMax+1+i)}).add(&usage.Usage{Output: 5}, 0)
	}
	if n := len(l.models); n > learnModels+1 {
		t.Errorf("%d models are kept", n)
	}
	for s := range l.models {
		if len(s.model) > modelMax {
			t.Errorf("a name of %d bytes is kept", len(s.model))
		}
	}
	first, beyond := subject{model: "model0"}, subject{model: "model4999"}
	if l.of(first) == l.of(beyond) || l.of(beyond) == nil || l.of(subject{model: "never seen"}) != l.of(beyond) {
		t.Error("models past the bound are not one")
	}
	// those that were there go on
	before := l.of(first).total.weight
	l.entry(first).add(&usage.Usage{Output: 5}, 0)
	if got := l.of(first).total.weight; got != before+1 {
		t.Errorf("weight %d after %d", got, before)
	}
}

func TestAskingForAModelKeepsNothing(t *testing.T) {
	m := New()
	for i := range 1000 {
		c := &Call{m: m, figures: new(figures), Request: &usage.Request{Model: fmt.Sprint(i), Choices: 1}}
		c.ExpectedOutput()
		c.Typical()
	}
	if n := len(m.learned.models); n != 0 {
		t.Errorf("%d models are kept", n)
	}
}

func TestLearningFromManyCallsAtATime(t *testing.T) {
	var l learned
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				l.entry(subject{model: fmt.Sprint(n % 3)}).add(&usage.Usage{Input: 1, Output: int64(i)}, 0)
				if in, out, total, ok := l.of(subject{model: fmt.Sprint(n % 3)}).expected(); ok && (in == 0 || total < out) {
					t.Errorf("got %d, %d, %d", in, out, total)
				}
			}
		})
	}
	wg.Wait()
	got := 0
	for _, model := range []string{"0", "1", "2"} {
		got += l.of(subject{model: model}).total.weight
	}
	if got != 800 {
		t.Errorf("%d calls were counted", got)
	}
}

func TestEstimatesAreCorrectedByHowTheyTurnOut(t *testing.T) {
	for _, tc := range []struct {
		name               string
		estimate, reported int64
		calls              int
		want               int64 // for an estimate of 10,000
	}{
		{"right", 1000, 1000, 100, 10_000},
		{"too low", 1000, 1500, 100, 15_000},
		{"too high", 1000, 500, 100, 5_000},
		{"far too low", 200, 1 << 40, 100, 40_000},
		{"too small to tell", 199, 500, 100, 10_000},
		{"far too high", 1 << 40, 1, 100, 2_500},
		{"too few calls", 1000, 3000, learnEnough - 1, 10_000},
		{"many calls", 1000, 1200, 10 * learnMost, 12_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l learned
			for range tc.calls {
				l.entry(subject{model: "m"}).add(&usage.Usage{Input: tc.reported}, tc.estimate)
			}
			if got := l.of(subject{model: "m"}).corrected(10_000); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// All limiters on the way of a call are told the same, and it is charged no other estimate
// than what was held for it, whatever has been learned meanwhile.
func TestWhatIsExpectedOfACallStaysTheSame(t *testing.T) {
	m := New()
	c := &Call{m: m, figures: new(figures), Request: &usage.Request{Model: "m", Choices: 1}}
	before, _, _ := c.Typical()
	for range learnEnough {
		m.learned.entry(subject{model: "m"}).add(&usage.Usage{Input: 3000, Output: 100}, 0)
	}
	if in, _, _ := c.Typical(); in != before {
		t.Errorf("got %d, and %d before", in, before)
	}
	c.attempts.routed = &usage.Request{Model: "other", Choices: 1}
	m.learned.entry(subject{model: "other"}).add(&usage.Usage{Input: 3000, Output: 100}, 0)
	for range learnEnough {
		m.learned.entry(subject{model: "other"}).add(&usage.Usage{Input: 9, Output: 9}, 0)
	}
	if in, _, _ := c.Typical(); in == before {
		t.Errorf("another model is expected to use %d, too", in)
	}
}

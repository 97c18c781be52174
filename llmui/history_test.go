package llmui

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const someMetrics = `# TYPE go_goroutines gauge
go_goroutines 12
# TYPE llm_cost_usd_total counter
llm_cost_usd_total{consumer="a",model="x"} 1.5
llm_cost_usd_total{consumer="a",model="y"} 0.25
llm_cost_usd_total{consumer="b \"quoted\"",model="y"} 2
# TYPE llm_tokens_total counter
llm_tokens_total{consumer="a",model="x",kind="input"} 100
llm_tokens_total{consumer="a",model="x",kind="cache_read"} 40
llm_tokens_total{consumer="a",model="x",kind="output"} 20
llm_tokens_total{consumer="a",model="x",kind="reasoning"} 5
# TYPE llm_requests_total counter
llm_requests_total{consumer="a",api="openai",status="2xx"} 3
llm_requests_total{consumer="a",api="openai",status="refused"} 2
# TYPE llm_refusals_total counter
llm_refusals_total{limiter="apps",rule="tokens per hour",shadow="false"} 2
llm_refusals_total{limiter="apps",rule="requests per day",shadow="false"} 1
llm_refusals_total{limiter="trial",rule="tokens per hour",shadow="true"} 9
`

func TestMetricsAreSummedByConsumerAndLimiter(t *testing.T) {
	s, err := parseSample(strings.NewReader(someMetrics))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.consumers["a"], (usage{USD: 1.75, Tokens: 120, Calls: 5, Refused: 2}); got != want {
		t.Errorf("a is %+v, want %+v", got, want)
	}
	if got := s.consumers[`b "quoted"`].USD; got != 2 {
		t.Errorf("b is %v", got)
	}
	if len(s.limiters) != 1 || s.limiters["apps"] != 3 {
		t.Errorf("refusals %v", s.limiters)
	}
	for _, text := range []string{"llm_cost_usd_total{", `llm_cost_usd_total{consumer="a`, `llm_cost_usd_total{consumer="a\`, `llm_cost_usd_total{consumer="a"}`, `llm_cost_usd_total{} NaN`, `llm_cost_usd_total{} -1`, `llm_cost_usd_total{} +Inf`, `llm_cost_usd_total{consumer} 1`} {
		if _, err := parseSample(strings.NewReader(someMetrics + text)); err == nil {
			t.Errorf("reads %s", text)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(someMetrics)
	f.Add("# TYPE llm_cost_usd_total counter\nllm_cost_usd_total NaN\n# TYPE llm_refusals_total counter\nllm_refusals_total{limiter=\"\"} +Inf\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSample(strings.NewReader(text))
		if err != nil {
			return
		}
		h := newHistory()
		h.add(time.Unix(0, 0), &sample{})
		h.add(time.Unix(5, 0), s)
		if _, err := json.Marshal(h.points); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever is read and whenever Caddy is restarted, the points are what was counted while
// it was looked at, and so are the sums of consumers.
func TestPointsAddUpToWhatWasCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory()
		now := usage{}
		counted := 0.0
		at := time.Unix(1_700_000_000, 0)
		for i := range rapid.IntRange(1, 60).Draw(t, "readings") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				now = usage{} // a restart, which forgets what nobody read
			case 1:
				h.miss(errors.New("away"))
				at = at.Add(sampleEvery)
				continue
			}
			n := float64(rapid.IntRange(1, 1000).Draw(t, "more"))
			before := h.last
			now.USD += n
			h.add(at, &sample{consumers: map[string]usage{"a": now}, limiters: map[string]float64{"apps": now.USD}})
			if before != nil {
				counted += rise(now.USD, before.consumers["a"].USD)
			} else if i > 0 && len(h.points) > 0 {
				t.Fatal("the first reading is a point")
			}
			at = at.Add(sampleEvery)
		}
		usd, refused := 0.0, 0.0
		for i, p := range h.points {
			usd += p.USD
			refused += p.Refused
			if p.USD < 0 || i > 0 && p.At <= h.points[i-1].At {
				t.Fatalf("points %+v", h.points)
			}
		}
		if usd != counted || refused != counted || h.consumers["a"].USD != counted {
			t.Fatalf("points have %v and %v, the consumer %v, counted %v", usd, refused, h.consumers["a"].USD, counted)
		}
	})
}

func TestHistoryIsADayLong(t *testing.T) {
	h := newHistory()
	at := time.Unix(0, 0)
	for i := range maxPoints + 10 {
		h.add(at.Add(time.Duration(i)*sampleEvery), &sample{consumers: map[string]usage{"a": {Calls: float64(i)}}})
	}
	if len(h.points) != maxPoints || h.points[0].At != at.Add(10*sampleEvery).UnixMilli() {
		t.Errorf("%d points from %d", len(h.points), h.points[0].At)
	}
	if h.consumers["a"].Calls != float64(maxPoints+9) {
		t.Errorf("a has %v calls", h.consumers["a"].Calls)
	}
}

func TestHistoryIsToldInParts(t *testing.T) {
	f := &fakeAdmin{metrics: someMetrics}
	s, id, csrf := inside(t, f)
	at := time.Unix(1_700_000_000, 0)
	tell := func(after int64) (answer struct {
		Since, Every int64
		Points       []point
		Top          []topConsumer
		Error        string
	},
	) {
		w := do(s, visit{path: s.base + "api/history?after=" + strconv.FormatInt(after, 10)}, id, csrf)
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := tell(0); got.Since != 0 || len(got.Points) != 0 {
		t.Errorf("before the first reading: %+v", got)
	}
	s.takeSample(t.Context(), at)
	f.mu.Lock()
	f.metrics = strings.Replace(someMetrics, "} 1.5", "} 2.5", 1)
	f.mu.Unlock()
	s.takeSample(t.Context(), at.Add(5*time.Second))
	s.takeSample(t.Context(), at.Add(10*time.Second))
	all := tell(0)
	if all.Since != at.UnixMilli() || len(all.Points) != 2 || all.Points[0].USD != 1 || all.Points[1].USD != 0 {
		t.Errorf("%+v", all)
	}
	if len(all.Top) != 1 || all.Top[0].Consumer != "a" || math.Abs(all.Top[0].USD-1) > 1e-9 {
		t.Errorf("top is %+v", all.Top)
	}
	if got := tell(all.Points[0].At); len(got.Points) != 1 {
		t.Errorf("after the first: %+v", got.Points)
	}
	f.mu.Lock()
	f.metrics = "llm_cost_usd_total{"
	f.mu.Unlock()
	s.takeSample(t.Context(), at.Add(15*time.Second))
	if got := tell(0); !strings.Contains(got.Error, "reading the metrics") {
		t.Errorf("error %q", got.Error)
	}
}

package meter

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestACallTeachesWhatItAsksAbout(t *testing.T) {
	m := New()
	fill := func(n int) {
		for i := range n {
			m.learned.entry(subject{model: fmt.Sprint("model-", i)})
		}
	}
	asking := func(model string) *Call {
		c := m.Call(newRequest(http.MethodPost, chatPath, plainBody))
		c.Request = &usage.Request{Model: model, Choices: 1}
		c.foresee()
		return c
	}
	check := func(name string, c *Call) {
		t.Helper()
		if got, want := c.known(), m.learned.of(c.subject()); got != want {
			t.Errorf("%s: it knows of %p, want %p", name, got, want)
		}
		if got, want := c.taught(), m.learned.entry(c.subject()); got != want {
			t.Errorf("%s: it teaches %p, want %p", name, got, want)
		}
		if got, want := c.known(), m.learned.of(c.subject()); got != want || got == nil {
			t.Errorf("%s: it knows of %p afterwards, want %p", name, got, want)
		}
	}
	early := asking("early")
	check("the first of a model", early)
	check("the second of a model", asking("early"))
	check("a long name", asking(strings.Repeat("m", modelMax+1)))
	late := asking("late")
	fill(learnModels)
	check("one that asked before there were too many models", late)
	check("one of too many models", asking("later"))
	check("one of a model that was there before", early)

	other := *early.Request
	other.Model = "model-1"
	early.attempts.routed = &other
	check("one that goes to another model", early)
}

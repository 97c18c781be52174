package llmapp

import (
	"sync"
	"testing"
)

func TestEventsThatWaitAreBounded(t *testing.T) {
	var o outbox
	o.running = true // nobody takes them
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range eventsMost {
				o.put("llm.refused", nil)
			}
		})
	}
	wg.Wait()
	batch, lost, ok := o.next()
	if len(batch) != eventsMost || lost != 2*eventsMost || !ok {
		t.Errorf("%d wait, %d are lost, %v", len(batch), lost, ok)
	}
	if batch, lost, ok = o.next(); len(batch) != 0 || lost != 0 || ok || o.running {
		t.Errorf("then %d wait, %d are lost, %v", len(batch), lost, ok)
	}
}

func TestEventsWithoutAConfigAreDropped(t *testing.T) {
	emit(event{"llm.refused", nil}) // no config runs
	Emit("llm.refused", nil)
}

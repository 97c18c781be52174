package limit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestWhatEachCallMayBringAboutIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		logger, o := zap.New(core), new(often)
		for range 30 {
			o.log(logger, zap.WarnLevel, "full", "apps", errors.New("no room"))
			time.Sleep(100 * time.Millisecond)
		}
		all := logs.All()
		if len(all) != 3 {
			t.Fatalf("%d lines in 3 s", len(all))
		}
		if n := all[2].ContextMap()["not_logged_before"]; n != int64(9) {
			t.Errorf("%v are said to be left out before the last line, want 9", n)
		}
	})
}

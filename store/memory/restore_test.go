package memory

import (
	"testing"
	"time"
)

// What a rolling window still covers of the one before is not forgiven with the clock.
func TestRollingWindowsOfAWrongClockKeepWhatWasUsed(t *testing.T) {
	c, dir, rolling := newClock(), t.TempDir(), everyKind[6]
	c.step(10 * 24 * time.Hour)
	s, _ := persisted(t, c, dir)
	adjust(t, s, app(1), rolling, 100)
	c.step(45 * time.Minute) // into the next window, a quarter of it
	adjust(t, s, app(1), rolling, 7)
	wantUsed(t, s, app(1), rolling, 7+75)
	mustClose(t, s)
	c.step(-10 * 24 * time.Hour)
	s, _ = persisted(t, c, dir)
	wantUsed(t, s, app(1), rolling, 7+75)
	c.step(2 * time.Hour)
	wantUsed(t, s, app(1), rolling, 0)
}

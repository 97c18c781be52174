package limit

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// often logs what each call may bring about, once a second at most: who hammers
// must not fill the disk.
type often struct {
	mu      sync.Mutex
	next    time.Time
	skipped int
}

func (o *often) log(logger *zap.Logger, level zapcore.Level, message, instance string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Before(o.next) {
		o.skipped++
		return
	}
	logger.Log(level, message, zap.String("instance", instance), zap.Int("not_logged_before", o.skipped), zap.Error(err))
	o.next, o.skipped = now.Add(time.Second), 0
}

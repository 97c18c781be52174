package redis

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// origin is a name that no other process has, with a sequence of its own. The server
// remembers the last number of each under a field, which lasts for as long as the
// entity is in use and forty days more; so it is for what is sent once in a while.
type origin struct {
	name string // 16 hexadecimal digits
	last atomic.Int64
}

func (o *origin) init() {
	var b [8]byte
	rand.Read(b[:])
	o.name = hex.EncodeToString(b[:])
}

// next returns the next number, which is near the time in microseconds.
func (o *origin) next(now time.Time) int64 {
	for {
		last := o.last.Load()
		n := max(last+1, now.UnixMicro())
		if o.last.CompareAndSwap(last, n) {
			return n
		}
	}
}

func isOrigin(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 8 && hex.EncodeToString(b) == name
}

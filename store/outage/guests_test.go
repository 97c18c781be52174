package outage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Names that clients make up fill neither the remote nor what is pending for it.
func TestConsumersThatAreNotKnownAreBounded(t *testing.T) {
	const most = 20
	for _, tt := range []struct {
		name string
		away bool
		o    Options
	}{
		{"at the remote", false, Options{}},
		{"admitted in an outage", true, Options{Policy: Allow}},
		{"counted in an outage", true, Options{Policy: Local}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, step := midday()
			tt.o.Now, tt.o.MaxEntities = now, most
			c, f := setup(t, newServer(now), tt.o)
			if tt.away {
				cut(t, c, f)
			}
			flood := func(from int) (admitted int) {
				for i := range 5 * most {
					r := store.Reservation{Entity: store.Entity{Instance: "apps", Consumer: fmt.Sprint(from + i)}, Takes: []store.Take{take(minute, 10, 1)}, Lease: time.Second}
					k, err := c.Reserve(context.Background(), &r, make([]store.Result, 1))
					if err != nil && !errors.Is(err, store.ErrFull) {
						t.Fatal(err)
					}
					if k != nil {
						admitted++
						c.Settle(k, []int64{1})
					}
				}
				return admitted
			}
			if n := flood(0); n != most {
				t.Errorf("admitted %d, want %d", n, most)
			}
			if n := flood(0); n != most {
				t.Errorf("admitted %d again, want %d", n, most)
			}
			admit(t, c, take(minute, 10, 1)) // one that is known
			step(2 * time.Minute)
			want := most
			if tt.away {
				want = 0 // all are pending still
			}
			if n := flood(1000); n != want {
				t.Errorf("admitted %d in the next window, want %d", n, want)
			}
		})
	}
}

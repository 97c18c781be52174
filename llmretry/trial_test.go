package llmretry

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// opened is a handler whose route has failed with two consumers, and may be tried again.
func opened(t *testing.T) *Handler {
	h := newHandler(t, &Handler{Attempts: 1, Breaker: &Breaker{
		Failures: 2, Per: caddy.Duration(time.Minute), Open: caddy.Duration(10 * time.Second),
	}})
	do(h, replies(500, "down"), from(t, "a"))
	do(h, replies(500, "down"), from(t, "b"))
	if res := do(h, replies(200, sixty), from(t, "c")); res.Code != 503 {
		t.Fatalf("the breaker is closed: %d", res.Code)
	}
	time.Sleep(10*time.Second + 1)
	return h
}

// hangs answers after a time, or when the client has hung up.
func hangs(d time.Duration, then caddyhttp.HandlerFunc) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-time.After(d):
			return then(w, r)
		case <-r.Context().Done():
			w.WriteHeader(statusClientGone)
			return nil
		}
	}
}

func TestTrialThatHangsHoldsUpOthersForItsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := opened(t)
		go do(h, hangs(time.Hour, replies(200, sixty)), from(t, "a"))
		synctest.Wait()
		if res := do(h, replies(200, sixty), from(t, "b")); res.Code != 503 {
			t.Errorf("beside a trial: %d", res.Code)
		}
		time.Sleep(10 * time.Second)
		if res := do(h, replies(200, sixty), from(t, "b")); res.Code != 200 {
			t.Errorf("after its time: %d", res.Code)
		}
		if res := do(h, replies(200, sixty), from(t, "c")); res.Code != 200 {
			t.Errorf("after another trial: %d", res.Code)
		}
		time.Sleep(time.Hour)
	})
}

func TestTrialThatAnswersLateCounts(t *testing.T) {
	for _, tt := range []struct {
		name string
		then caddyhttp.HandlerFunc
		want int
	}{
		{"it works", replies(200, sixty), 200},
		{"it fails", replies(500, "down"), 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := opened(t)
				go do(h, hangs(15*time.Second, tt.then), from(t, "a"))
				time.Sleep(11 * time.Second)
				go do(h, hangs(15*time.Second, tt.then), from(t, "b")) // the next trial
				time.Sleep(5 * time.Second)
				if res := do(h, replies(200, sixty), from(t, "c")); res.Code != tt.want {
					t.Errorf("got %d, want %d", res.Code, tt.want)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestWhoHangsUpOnTrialsDoesNotGetOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := opened(t)
		served := 0
		for range 20 {
			ctx, hangUp := context.WithTimeout(t.Context(), 2*time.Second)
			go func() {
				r := request(ctx, chatBody)
				caddyhttp.SetVar(r.Context(), meter.VarApplication, "evil")
				do(h, hangs(time.Hour, replies(200, sixty)), r)
			}()
			synctest.Wait()
			if res := do(h, replies(200, sixty), from(t, "good")); res.Code == 200 {
				served++
			}
			time.Sleep(5 * time.Second) // the drain of the call is over as well
			hangUp()
		}
		if served < 19 {
			t.Errorf("another consumer is served %d times of 20", served)
		}
		time.Sleep(2 * time.Hour)
	})
}

// slowBody is an upload that takes a while.
type slowBody struct {
	io.Reader
	wait time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.wait)
	b.wait = 0
	return b.Reader.Read(p)
}

func (*slowBody) Close() error { return nil }

func TestSlowUploadHoldsNoTrial(t *testing.T) {
	for _, length := range []int64{10, 2 << 20} { // one that is held, and one that is not
		synctest.Test(t, func(t *testing.T) {
			h := broken(t)
			for range 3 {
				do(h, replies(400, "no"), from(t, "a"))
			}
			time.Sleep(10*time.Second + 1)
			go func() {
				r := from(t, "a")
				r.URL.Path = "/v1/files"
				r.Body, r.ContentLength = &slowBody{strings.NewReader(strings.Repeat("x", int(length))), 5 * time.Second}, length
				do(h, func(w http.ResponseWriter, r *http.Request) error {
					_, _ = io.Copy(io.Discard, r.Body)
					return replies(200, "{}")(w, r)
				}, r)
			}()
			synctest.Wait()
			if res := do(h, replies(200, sixty), from(t, "a")); res.Code != 200 {
				t.Errorf("beside an upload of %d bytes: %d", length, res.Code)
			}
			time.Sleep(time.Minute)
		})
	}
}

package integration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAProcessThatIsKilledLosesASecondAtMost(t *testing.T) {
	// A machine under load may write late; one that always does is wrong.
	var got string
	for range 3 {
		k := newKeeper(t, nil)
		p := k.run(t)
		p.chats(20)
		kill := time.Now().Add(time.Second)
		made := int64(20)
		for time.Now().Before(kill) {
			if err := p.chat(); err != nil {
				t.Fatal(err)
			}
			made++
		}
		p.end(syscall.SIGKILL)
		tokens, requests := k.run(t).used()
		// The request of a call is charged before its tokens are.
		if tokens > 60*made || requests > made || tokens > 60*requests {
			t.Fatalf("%d tokens and %d requests are used by %d calls", tokens, requests, made)
		}
		if tokens >= 60*20 && requests >= 20 {
			return
		}
		got = fmt.Sprintf("%d tokens and %d requests are left of 20 calls that ended a second before", tokens, requests)
	}
	t.Error(got)
}

func TestAProcessThatIsStoppedLosesNothing(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, nil)
	var want int64
	for i, persist := range []string{"", "", "persist " + filepath.Join(t.TempDir(), "own"), ""} {
		k.persist = persist
		if i == 2 {
			want = 0 // another directory
		}
		if i == 3 {
			want = 2 * 7 * 60
		}
		p := k.run(t)
		p.wantUsed(want)
		p.chats(7)
		p.end(syscall.SIGTERM)
		want += 7 * 60
	}
	k.run(t).wantUsed(want)
}

func TestCallsThatEndDuringAStopAreCounted(t *testing.T) {
	t.Parallel()
	reached, release := make(chan struct{}, 10), make(chan struct{})
	k := newKeeper(t, func(w http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-release
		sixtyTokens(w, r)
	})
	p := k.run(t)
	errs := make(chan error, 5)
	for range 5 {
		go func() { errs <- p.chat() }()
		select {
		case <-reached:
		case err := <-errs:
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.out.String(), "shutting down"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not stop: %s", &p.out)
		}
	}
	close(release)
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	<-p.ended
	k.run(t).wantUsed(5 * 60)
}

func TestATornFileKeepsWhatWasWrittenBefore(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, nil)
	p := k.run(t)
	p.chats(5)
	p.end(syscall.SIGTERM)
	data, err := os.ReadFile(k.file())
	if err != nil {
		t.Fatal(err)
	}
	torn := append(bytes.Clone(data), data[len(data)-20:len(data)-5]...)
	if err := os.WriteFile(k.file(), torn, 0o600); err != nil {
		t.Fatal(err)
	}
	p = k.run(t)
	p.wantUsed(5 * 60)
	if log := p.out.String(); !strings.Contains(log, "its end was cut off") || !strings.Contains(log, `"dropped_bytes": 15`) && !strings.Contains(log, `"dropped_bytes":15`) {
		t.Errorf("the log is %s", log)
	}
	p.chats(1)
	p.end(syscall.SIGKILL)
}

func TestASecondProcessOnADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, persist string }{
		{"the default", ""},
		{"one of its own", "persist " + filepath.Join(t.TempDir(), "own")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKeeper(t, nil)
			k.persist = tc.persist
			first := k.run(t)
			first.chats(1)
			second := k.launch(t)
			select {
			case <-second.ended:
			case <-time.After(time.Minute):
				t.Fatalf("it goes on: %s", &second.out)
			}
			dir := cmp.Or(strings.TrimPrefix(tc.persist, "persist "), filepath.Dir(k.file()))
			for _, want := range []string{dir, "another Caddy with the same persist directory is running; give each its own"} {
				if !strings.Contains(second.out.String(), want) {
					t.Errorf("it does not say %q: %s", want, &second.out)
				}
			}
			if second.cmd.ProcessState.Success() {
				t.Error("it ended as if all were well")
			}
			for _, name := range []string{"validate", "adapt"} {
				if out, err := k.command(t, name, first.addr, first.admin).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", name, err, out)
				}
			}
			first.chats(1)
			first.wantUsed(2 * 60)
			first.end(syscall.SIGTERM)
			k.run(t).wantUsed(2 * 60)
		})
	}
}

func TestValidatingLeavesNoTrace(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, nil)
	k.persist = "persist " + filepath.Join(k.data, "own")
	for _, name := range []string{"validate", "adapt"} {
		if out, err := k.command(t, name, "127.0.0.1:1", filepath.Join(t.TempDir(), "a.sock")).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	for _, path := range []string{filepath.Join(k.data, "own"), filepath.Dir(k.file())} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there (%v)", path, err)
		}
	}
}

func TestADirectoryThatCannotBeMadeIsWarnedOf(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, nil)
	k.data = filepath.Join(k.data, "file")
	if err := os.WriteFile(k.data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, persist := range []string{"", "persist " + filepath.Join(k.data, "own")} {
		k.persist = persist
		p := k.run(t)
		p.chats(2)
		p.wantUsed(2 * 60)
		if log := p.out.String(); !strings.Contains(log, "counts are in memory only") || !strings.Contains(log, "not a directory") {
			t.Errorf("the log is %s", log)
		}
		p.end(syscall.SIGTERM)
	}
}

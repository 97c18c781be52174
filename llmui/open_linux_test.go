package llmui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Other users see command lines, and may not read the file that the link is in.
func TestBrowsersAreGivenTheLinkInAFileOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\nstat -c %a \"$1\" > " + seen + ".tmp\necho \"$*\" >> " + seen + ".tmp\ncat \"$1\" >> " + seen + ".tmp\nmv " + seen + ".tmp " + seen + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)

	const link = "http://127.0.0.1:1/base/?token=T0ken"
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	openBrowser(link)()
	t.Setenv("DISPLAY", ":0")
	done := openBrowser(link)
	var text []byte
	for deadline := time.Now().Add(time.Minute); text == nil; time.Sleep(10 * time.Millisecond) {
		text, _ = os.ReadFile(seen)
		if time.Now().After(deadline) {
			t.Fatal("nothing is opened")
		}
	}
	done()
	mode, rest, _ := strings.Cut(string(text), "\n")
	args, page, _ := strings.Cut(rest, "\n")
	if mode != "600" || strings.Contains(args, "T0ken") || !strings.Contains(page, `url=`+link+`"`) {
		t.Errorf("mode %s, arguments %s, file %s", mode, args, page)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "llm-ui-*")); err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

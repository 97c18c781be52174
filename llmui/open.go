package llmui

import (
	"context"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// openBrowser opens a link where there is a desktop, and returns what is to be done in
// the end. Other users of the machine see command lines; so the browser is given a file
// that only this user may read, and that leads to the link. That nothing opened is no
// error: the link has been printed.
func openBrowser(link string) (done func()) {
	done = func() {}
	var name string
	var args []string
	switch {
	case runtime.GOOS == "darwin":
		name = "open"
	case runtime.GOOS == "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		name = "xdg-open"
	default:
		return done
	}
	dir, err := os.MkdirTemp("", "llm-ui-")
	if err != nil {
		return done
	}
	done = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=` + html.EscapeString(link) + `">`
	if os.WriteFile(file, []byte(text), 0o600) != nil {
		return done
	}
	c := exec.CommandContext(context.Background(), name, append(args, file)...)
	if c.Start() == nil {
		go func() { _ = c.Wait() }() // it tells nothing that helps
	}
	return done
}

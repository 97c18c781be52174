package llmapp

import (
	"bytes"
	"io"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(logWriter{})
}

// memoryLog is a log that is kept in memory.
type memoryLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// testLog is what Caddy has logged in the running test.
var testLog memoryLog

func (l *memoryLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *memoryLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *memoryLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
}

// Close implements io.Closer; a config that ends closes its logs.
func (*memoryLog) Close() error { return nil }

// logWriter has Caddy log there.
type logWriter struct{}

func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.test_log", New: func() caddy.Module { return new(logWriter) }}
}
func (logWriter) String() string                      { return "test_log" }
func (logWriter) WriterKey() string                   { return "test_log" }
func (logWriter) OpenWriter() (io.WriteCloser, error) { return &testLog, nil }

package prices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// fetchTimeout bounds a fetch from its first byte sent to its last one read.
const fetchTimeout = 30 * time.Second

// source is one place that prices come from, with the last good copy of what was there.
type source struct {
	mu sync.Mutex // held by who looks for a newer copy
	origin
	client *http.Client // nil of a file
	saved  string       // where the last good copy is kept; empty if it is not
	now    func() time.Time

	layer    *Layer // nil before the first good copy
	etag     string
	modified string
	stamp    stamp
	unkept   *saved    // the last good copy if it is yet to be kept; nil if it is not
	tried    time.Time // when that failed last; zero if it was not tried
	fault    string    // why it did
}

// keepAgain is when a copy that could not be kept is tried again, as of a disk that was
// full. The place that it is from may not change for months.
const keepAgain = time.Minute

// stamp is how a change of a file is noticed.
type stamp struct {
	modified time.Time
	size     int64
	fault    string // that kept the file from being looked at
}

// read looks for a newer copy. It returns nil where there is none, and an error where
// there is one that cannot be used; the last copy then stays. A copy that is used, but
// could not be kept for a restart, is returned with an error.
func (s *source) read(ctx context.Context) (*Layer, error) {
	var l *Layer
	var err error
	if s.url != nil {
		l, err = s.fetch(ctx)
	} else {
		l, err = s.readFile()
	}
	// What is yet to be kept is all the more so while its place is away.
	fault := s.keep()
	switch {
	case err != nil:
		return l, errors.Join(err, fault)
	case fault != nil:
		return s.layer, fault
	}
	return l, nil
}

// keep keeps the last good copy for a restart, if that is yet to be done. That it cannot is
// told once.
func (s *source) keep() (told error) {
	c := s.unkept
	if c == nil {
		return nil
	}
	now, first := s.now(), s.tried.IsZero()
	if wait := now.Sub(s.tried); !first && wait >= 0 && wait < keepAgain {
		return nil
	}
	s.tried = now
	err := c.write(s.saved)
	switch {
	case err == nil:
		s.unkept = nil
		unkept.Delete(s.saved)
		return nil
	case first:
		told = err
	}
	s.fault = err.Error()
	return told
}

// waits tells whether a copy is yet to be kept.
func (s *source) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unkept != nil
}

// toKeep has a copy that is in use kept. One with prices that moved far is not: after a
// restart nothing would tell that they did. The one before is, if that is yet to be done.
func (s *source) toKeep(c *saved, l *Layer) {
	if s.saved == "" || len(l.Held) > 0 {
		return
	}
	s.unkept, s.tried = c, time.Time{}
	unkept.Store(s.saved, c)
}

// unkept are the copies of this process that are yet to be kept, by where they are to be:
// a set that is made by the next config starts with them as if they were.
var unkept sync.Map

// first is the copy to start with, and writes nothing. A file that cannot be used any
// more gives way to the last good copy of it, with an error; a newer copy of it is
// compared with the last one, as if there had been no restart.
func (s *source) first() (*Layer, error) {
	kept, err := s.load()
	if s.url != nil {
		return kept, err
	}
	l, fault := s.readFile()
	if l == nil {
		return kept, fault
	}
	return l, err
}

// readFile reads the file if it is not as it was when it was last read, well or badly.
func (s *source) readFile() (*Layer, error) {
	now, err := stampOf(s.path)
	if err != nil {
		if s.stamp.fault == err.Error() {
			return nil, nil // has been told
		}
		s.stamp = stamp{fault: err.Error()}
		return nil, err
	}
	if now == s.stamp {
		return nil, nil
	}
	data, err := readBounded(s.path)
	// What was written to the file meanwhile is noticed the next time.
	s.stamp = now
	if err != nil {
		return nil, err
	}
	l, err := s.accept(data, now.modified)
	if err != nil {
		return nil, err
	}
	s.toKeep(&saved{AsOf: now.modified, body: data}, l)
	return l, nil
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	if info.IsDir() {
		return stamp{}, fmt.Errorf("%q is a directory", path)
	}
	return stamp{modified: info.ModTime(), size: info.Size()}, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDocument+1))
}

// accept makes a document the source's layer, if it can be used. It was collected at
// asOf, unless it says better.
func (s *source) accept(data []byte, asOf time.Time) (*Layer, error) {
	l, err := parseDocument(data, s.String())
	if err != nil {
		return nil, err
	}
	if l.AsOf.IsZero() {
		l.AsOf = asOf
	}
	if s.layer != nil {
		l.Held, err = guardRefresh(s.layer, l)
		if err != nil {
			return nil, err
		}
	}
	s.layer = l
	return l, nil
}

// load takes the copy that was kept before a restart. It returns nil if there is none.
func (s *source) load() (*Layer, error) {
	if s.saved == "" {
		return nil, nil
	}
	var c *saved
	var err error
	if in, ok := unkept.Load(s.saved); ok {
		c = in.(*saved)
		s.unkept = c
	} else if c, err = readSaved(s.saved); c == nil || err != nil {
		return nil, err
	}
	l, err := s.accept(c.body, c.AsOf)
	if err != nil {
		return nil, fmt.Errorf("reading the last copy: %w", err)
	}
	s.etag, s.modified = c.ETag, c.LastModified
	return l, nil
}

// fetch asks for the document, and takes it if it has changed.
func (s *source) fetch(ctx context.Context) (*Layer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), http.NoBody)
	if err != nil {
		return nil, errors.New("no request can be made of the URL")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "caddy-llm-limits")
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	if s.modified != "" {
		req.Header.Set("If-Modified-Since", s.modified)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetching: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return nil, nil
	default:
		return nil, fmt.Errorf("fetching: the answer is %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("fetching: %w", withoutURL(err))
	}
	c := saved{
		ETag:         resp.Header.Get("ETag"),
		LastModified: resp.Header.Get("Last-Modified"),
		AsOf:         s.now(),
		body:         data,
	}
	if t, err := http.ParseTime(c.LastModified); err == nil {
		c.AsOf = t
	}
	l, err := s.accept(data, c.AsOf)
	if err != nil {
		return nil, err
	}
	s.etag, s.modified = c.ETag, c.LastModified
	s.toKeep(&c, l)
	return l, nil
}

// withoutURL is the cause of a failed request, without the URL that it was made to.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// newSource makes the source of a place, whose last good copy is kept in dir; nowhere if
// that is empty.
func newSource(location, dir string, client *http.Client, now func() time.Time) (*source, error) {
	o, err := parseOrigin(location)
	if err != nil {
		return nil, err
	}
	s := &source{origin: o, now: now}
	if dir != "" {
		s.saved = filepath.Join(dir, o.fileName())
	}
	if o.url != nil {
		s.client = strictClient(client)
	}
	return s, nil
}

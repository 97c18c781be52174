//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// This file finds where requests and replies end, in both versions of the
// protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/

// most is the longest value and the most members that are read; more than any
// test sends.
const most = 64 << 20

// readRequest returns a request as it came, and the name of its command in lower
// case.
func readRequest(r *bufio.Reader) (raw []byte, command string, err error) {
	var b bytes.Buffer
	if err := copyValue(r, &b, 0); err != nil {
		return nil, "", err
	}
	raw = b.Bytes()
	// *2\r\n$3\r\nGET\r\n…
	if parts := bytes.SplitN(raw, []byte("\r\n"), 4); len(parts) == 4 {
		command = strings.ToLower(string(parts[2]))
	}
	return raw, command, nil
}

// readReply returns a reply as it came, with what the server says unasked before it.
func readReply(r *bufio.Reader) ([]byte, error) {
	var b bytes.Buffer
	for {
		kind, err := r.Peek(1)
		if err != nil {
			return nil, err
		}
		// A push answers nothing, and attributes stand before what they belong to.
		ahead := kind[0] == '>' || kind[0] == '|'
		if err := copyValue(r, &b, 0); err != nil {
			return nil, err
		}
		if !ahead {
			return b.Bytes(), nil
		}
	}
}

// copyValue copies a value with all that is in it.
func copyValue(r *bufio.Reader, b *bytes.Buffer, depth int) error {
	if depth > 64 {
		return errors.New("values lie too deep in each other")
	}
	line, err := r.ReadString('\n')
	b.WriteString(line)
	if err != nil {
		return err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '$', '=', '!': // so many bytes
		n, err := count(rest)
		if err != nil || n < 0 {
			return err
		}
		_, err = io.CopyN(b, r, n+2)
		return err
	case '*', '~', '>': // so many values
		n, err := count(rest)
		return errors.Join(err, copyValues(r, b, n, depth))
	case '%', '|': // so many pairs
		n, err := count(rest)
		return errors.Join(err, copyValues(r, b, 2*n, depth))
	default: // a line
		return nil
	}
}

func copyValues(r *bufio.Reader, b *bytes.Buffer, n int64, depth int) error {
	for range n {
		if err := copyValue(r, b, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// count is -1 for a value that is not there.
func count(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%q is not a length", s)
	}
	return n, nil
}

package meter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func TestErrorsOfRequestsThatWereSent(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"one without a status", boom, false},
		{"no upstream", caddyhttp.Error(503, boom), false},
		{"a handler's", caddyhttp.Error(500, boom), false},
		{"a timeout", caddyhttp.Error(504, context.DeadlineExceeded), true},
		{"the end of the connection", caddyhttp.Error(502, io.EOF), true},
		{"a reset", caddyhttp.Error(502, &net.OpError{Op: "read", Err: syscall.ECONNRESET}), true},
		{"one that is wrapped", fmt.Errorf("route: %w", caddyhttp.Error(504, boom)), true},
		{"a dial", caddyhttp.Error(502, reverseproxy.NewDialError(boom)), false},
		{"a dial that timed out", caddyhttp.Error(504, &net.OpError{Op: "dial", Err: reverseproxy.NewDialError(context.DeadlineExceeded)}), false},
		{"a proxy on the way", caddyhttp.Error(502, &net.OpError{Op: "proxyconnect", Err: boom}), false},
		{"a certificate", caddyhttp.Error(502, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false},
		{"an alert of TLS", caddyhttp.Error(502, &net.OpError{Op: "remote error", Err: boom}), false},
		{"no TLS", caddyhttp.Error(502, tls.RecordHeaderError{Msg: "first record"}), false},
		{"a handshake that timed out", caddyhttp.Error(504, errors.New("net/http: TLS handshake timeout")), false},
		{"a connection that had been closed", caddyhttp.Error(502, errors.New("http: server closed idle connection")), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Unanswered(tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

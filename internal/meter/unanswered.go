package meter

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Unanswered tells whether an error is that of a request which was sent and had no answer:
// the gateway waited for it long enough, or its connection broke. The provider may have
// been at work all the time, and bills for it.
func Unanswered(err error) bool {
	var he caddyhttp.HandlerError
	if !errors.As(err, &he) {
		return false
	}
	// so reverse_proxy tells; that there is no upstream to ask is 503
	return (he.StatusCode == http.StatusBadGateway || he.StatusCode == http.StatusGatewayTimeout) && !unsent(err)
}

// unsent tells whether an error of the way upstream came before a request was sent: with
// the connection, or when TLS was agreed upon, or because a connection that had been kept
// turned out to be closed, after which net/http itself takes it that nothing was done.
func unsent(err error) bool {
	var undialled reverseproxy.DialError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &undialled) || errors.As(err, &certificate) || errors.As(err, &record) {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "remote error" || op.Op == "local error") {
		return true // the latter two are alerts of TLS
	}
	// net/http does not export these
	said := err.Error()
	return strings.Contains(said, "TLS handshake") || strings.Contains(said, "server gave HTTP response to HTTPS client") ||
		strings.Contains(said, "server closed idle connection")
}

// Miss notes that an attempt was sent and had no answer. It is charged with the rest of
// the call, as what it was expected to use.
func (c *Call) Miss() {
	if c.tap == nil || c.tap.resp == nil || c.Request == nil || c.Endpoint.Class != usage.Spending {
		return // nobody wants to know what it used, or it is free
	}
	c.attempts.lost = append(c.attempts.lost, &Lost{
		report: usage.Report{Usage: c.expected()}, source: SourceEstimated, priced: c.made(), pricer: c.Pricer(),
	})
}

// expected is what the call is thought to use.
func (c *Call) expected() usage.Usage {
	// what other callers' prompts were like may add to an estimate, never take away
	u := usage.Usage{Input: max(c.ExpectedInput(), c.Request.PromptTokens()), Output: c.ExpectedOutput()}
	if c.speaks() {
		u.AudioOut = u.Output
	}
	return u
}

package llmretry

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// retryable tells whether another attempt may change a status, and may be made: what
// somebody pays for is not to be begun twice.
func (t *tries) retryable(status int) bool {
	if !t.h.retryable(status) {
		return false
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true // nothing was done
	}
	return !t.creates
}

// retryableError tells the same of an error, which is that of handlers that have not
// answered, and the status that it stands for. sent is set if the request went upstream.
func (t *tries) retryableError(err error, sent bool) (status int, again bool) {
	var he caddyhttp.HandlerError
	status = http.StatusInternalServerError
	if errors.As(err, &he) && he.StatusCode != 0 {
		status = he.StatusCode
	}
	var undialled reverseproxy.DialError
	switch {
	case errors.As(err, &undialled):
		return status, true
	case t.creates:
		return status, status == http.StatusServiceUnavailable // so reverse_proxy tells that there is no upstream to ask
	case !sent && (status == http.StatusBadGateway || status == http.StatusServiceUnavailable):
		return status, true // so reverse_proxy tells that no connection came about
	}
	// What was sent may have been worked for, and is paid for each time: the operator says
	// whether it is worth that.
	return status, t.h.retryable(status)
}

// judge tells the breakers the status that the client gets.
func (t *tries) judge(status int) {
	t.judgeRoute(status)
	switch {
	case t.call.HoldsBack(status):
		t.doubtful = true // it may be due to what the meter asks for in the client's stead
	case status >= 400 && status <= 499 && status != statusClientGone:
		told(&t.consumer, errFailed)
	case status < 400:
		told(&t.consumer, nil)
	}
}

// judgeLate tells a consumer's breaker, at the end, what it has not been told yet.
func (t *tries) judgeLate() {
	if t.doubtful && !t.call.Repeats() {
		told(&t.consumer, errFailed)
	}
	told(&t.consumer, errUnknown)
}

// judgeRoute tells the breaker of a route the status of an attempt.
func (t *tries) judgeRoute(status int) {
	switch {
	case status >= 500:
		told(&t.route, errFailed)
	case status != statusClientGone:
		told(&t.route, nil)
	}
}

// told tells a breaker once.
func told(done *func(error), err error) {
	if *done != nil {
		(*done)(err)
		*done = nil
	}
}

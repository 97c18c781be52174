package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// attempt is a call as the application that made it sees it.
type attempt struct {
	OK       string     `json:"ok,omitempty"`
	Statuses []int      `json:"statuses"` // of all requests, retries included
	Error    *described `json:"error,omitempty"`
}

// described is what an application can see of an error.
type described struct {
	Class       string `json:"class"` // the type that errors.As finds
	Code        string `json:"code"`
	Type        string `json:"type"`
	Message     string `json:"message"`
	ShouldRetry string `json:"shouldRetry"`
	Status      int    `json:"status"`
	RetryAfter  int    `json:"retryAfter"` // seconds
}

// middleware is what both clients take to look at requests.
type middleware = func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error)

// attempts make one call each, with a client of its own that has the defaults.
var attempts = map[string]func(context.Context, middleware) (string, error){
	"openai": func(ctx context.Context, observe middleware) (string, error) {
		ai := openai.NewClient(option.WithMiddleware(observe))
		whole, err := ai.Chat.Completions.New(ctx, chatParams())
		if err != nil {
			return "", err
		}
		return whole.Choices[0].Message.Content, nil
	},
	"openaiStream": func(ctx context.Context, observe middleware) (text string, err error) {
		ai := openai.NewClient(option.WithMiddleware(observe))
		_, err = each(ai.Chat.Completions.NewStreaming(ctx, chatParams()), func(chunk openai.ChatCompletionChunk) error {
			text += chunk.Choices[0].Delta.Content
			return nil
		})
		return text, err
	},
	"anthropic": func(ctx context.Context, observe middleware) (string, error) {
		claude := anthropic.NewClient(anthropicoption.WithMiddleware(observe))
		whole, err := claude.Messages.New(ctx, messageParams())
		if err != nil {
			return "", err
		}
		return whole.Content[0].Text, nil
	},
	"anthropicStream": func(ctx context.Context, observe middleware) (string, error) {
		claude := anthropic.NewClient(anthropicoption.WithMiddleware(observe))
		var whole anthropic.Message
		if _, err := each(claude.Messages.NewStreaming(ctx, messageParams()), whole.Accumulate); err != nil {
			return "", err
		}
		return whole.Content[0].Text, nil
	},
}

// try makes a call and notes the status of every request: retries are otherwise not
// to be seen.
func try(ctx context.Context, call func(context.Context, middleware) (string, error)) (a attempt) {
	observe := func(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := next(r)
		if err == nil {
			a.Statuses = append(a.Statuses, resp.StatusCode)
		}
		return resp, err
	}
	text, err := call(ctx, observe)
	if err != nil {
		a.Error = describe(err)
		return a
	}
	a.OK = text
	return a
}

func describe(err error) *described {
	var (
		ofOpenAI    *openai.Error
		ofAnthropic *anthropic.Error
	)
	switch {
	case errors.As(err, &ofOpenAI):
		d := describedBy(ofOpenAI.Response)
		d.Code, d.Type, d.Message = ofOpenAI.Code, ofOpenAI.Type, ofOpenAI.Message
		return d
	case errors.As(err, &ofAnthropic):
		var body struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(ofAnthropic.RawJSON()), &body); err != nil {
			return &described{Class: "unreadable", Message: err.Error()}
		}
		d := describedBy(ofAnthropic.Response)
		d.Code, d.Type, d.Message = body.Error.Code, string(ofAnthropic.Type()), body.Error.Message
		return d
	default:
		return &described{Class: "unknown", Message: err.Error()}
	}
}

func describedBy(resp *http.Response) *described {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // none is 0
	return &described{
		Class: "Error", Status: resp.StatusCode, RetryAfter: seconds, ShouldRetry: resp.Header.Get("X-Should-Retry"),
	}
}

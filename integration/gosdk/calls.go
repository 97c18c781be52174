package main

import (
	"context"
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const question = "How does basalt cool?"

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               openai.ChatModelGPT4oMini,
		MaxCompletionTokens: openai.Int(64),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	}
}

func withUsage() openai.ChatCompletionNewParams {
	p := chatParams()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	return p
}

func messageParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     "claude-haiku-4-5",
		MaxTokens: 64,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
}

// call makes a call and returns what the client gives for it.
type call = func(context.Context) (any, error)

// calls are all kinds of calls that the gateway meters, streamed and not, and some
// that are free.
func calls() map[string]call {
	ai := openai.NewClient(option.WithMaxRetries(0))
	claude := anthropic.NewClient(anthropicoption.WithMaxRetries(0))
	response := responses.ResponseNewParams{
		Model:           "gpt-5-mini",
		MaxOutputTokens: openai.Int(64),
		Input:           responses.ResponseNewParamsInputUnion{OfString: openai.String(question)},
	}
	two := chatParams()
	two.N = openai.Int(2)
	return map[string]call{
		"chat":              func(ctx context.Context) (any, error) { return raw(ai.Chat.Completions.New(ctx, chatParams())) },
		"chat, two choices": func(ctx context.Context) (any, error) { return raw(ai.Chat.Completions.New(ctx, two)) },
		"chat stream": func(ctx context.Context) (any, error) {
			return accumulated(ai.Chat.Completions.NewStreaming(ctx, chatParams()))
		},
		"chat stream, two choices": func(ctx context.Context) (any, error) {
			return accumulated(ai.Chat.Completions.NewStreaming(ctx, two))
		},
		"chat stream with usage": func(ctx context.Context) (any, error) {
			return accumulated(ai.Chat.Completions.NewStreaming(ctx, withUsage()))
		},
		"embeddings": func(ctx context.Context) (any, error) {
			return raw(ai.Embeddings.New(ctx, openai.EmbeddingNewParams{
				Model: openai.EmbeddingModelTextEmbedding3Small,
				Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"basalt", "granite"}},
			}))
		},
		"response": func(ctx context.Context) (any, error) { return raw(ai.Responses.New(ctx, response)) },
		"response stream": func(ctx context.Context) (any, error) {
			return listed(ai.Responses.NewStreaming(ctx, response))
		},
		"model": func(ctx context.Context) (any, error) { return raw(ai.Models.Get(ctx, "gpt-4o-mini")) },

		"message": func(ctx context.Context) (any, error) { return raw(claude.Messages.New(ctx, messageParams())) },
		"message stream": func(ctx context.Context) (any, error) {
			return listed(claude.Messages.NewStreaming(ctx, messageParams()))
		},
		"message stream, accumulated": func(ctx context.Context) (any, error) {
			var whole anthropic.Message
			_, err := each(claude.Messages.NewStreaming(ctx, messageParams()), whole.Accumulate)
			return whole.Content[0].Text + " " + string(whole.StopReason) + " " + whole.Usage.RawJSON(), err
		},
		"message tokens": func(ctx context.Context) (any, error) {
			p := messageParams()
			return raw(claude.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: p.Model, Messages: p.Messages}))
		},
	}
}

// raw is a document as it came.
func raw[T interface{ RawJSON() string }](document T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return json.RawMessage(document.RawJSON()), nil
}

// stream is what both clients give for one.
type stream[T any] interface {
	Next() bool
	Current() T
	Err() error
	Close() error
}

// each hands all events of a stream to f and returns how many there were.
func each[T any](s stream[T], f func(T) error) (n int, err error) {
	defer s.Close()
	for s.Next() {
		if err := f(s.Current()); err != nil {
			return n, err
		}
		n++
	}
	return n, s.Err()
}

// listed is all events of a stream as they came.
func listed[T interface{ RawJSON() string }](s stream[T]) (any, error) {
	var events []json.RawMessage
	_, err := each(s, func(event T) error {
		events = append(events, json.RawMessage(event.RawJSON()))
		return nil
	})
	return events, err
}

// accumulated is what the client's own reader makes of a chat stream, and how many
// chunks that took. A chunk may say that usage is null or say nothing of it.
func accumulated(s stream[openai.ChatCompletionChunk]) (any, error) {
	var (
		whole  openai.ChatCompletionAccumulator
		usages []string
	)
	n, err := each(s, func(chunk openai.ChatCompletionChunk) error {
		whole.AddChunk(chunk)
		if chunk.JSON.Usage.Valid() {
			usages = append(usages, chunk.Usage.RawJSON())
		}
		return nil
	})
	texts := make([]string, len(whole.Choices))
	for i, c := range whole.Choices {
		texts[i] = c.Message.Content + " " + c.FinishReason
	}
	return map[string]any{
		"id": whole.ID, "model": whole.Model, "chunks": n, "texts": texts, "usages": usages,
		"prompt_tokens": whole.Usage.PromptTokens, "completion_tokens": whole.Usage.CompletionTokens,
	}, err
}

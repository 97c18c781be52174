// The clients that the scripts of this folder use, and how they report.
//
// Address and key come from the variables that the SDKs read by themselves
// (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY): an
// application is moved to the gateway by changing these alone.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

export const CHAT_MODEL = 'gpt-4o-mini';
export const CLAUDE_MODEL = 'claude-haiku-4-5';

const messages = [{ role: 'user', content: 'How does basalt cool?' }];
export const chat = { model: CHAT_MODEL, max_completion_tokens: 64, messages };
export const claude = { model: CLAUDE_MODEL, max_tokens: 64, messages };

// observed wraps fetch, which both SDKs take as an option, to note the status of
// every request that is sent: retries are otherwise not to be seen.
function observed(statuses) {
  return async (url, init) => {
    const response = await fetch(url, init);
    statuses.push(response.status);
    return response;
  };
}

// attempt makes one call per SDK, each with a client of its own, and says how it
// ended: `{ok}` or `{error}`, and the statuses of all its requests.
export async function attempt(name, options = {}) {
  const statuses = [];
  const settings = { ...options, fetch: observed(statuses) };
  try {
    const ok = await calls[name](settings);
    return { ok, statuses };
  } catch (error) {
    return { error: described(error), statuses };
  }
}

const calls = {
  openai: async (settings) => {
    const completion = await new OpenAI(settings).chat.completions.create(chat);
    return completion.choices[0].message.content;
  },
  openaiStream: async (settings) => {
    let text = '';
    for await (const chunk of await new OpenAI(settings).chat.completions.create({ ...chat, stream: true })) {
      text += chunk.choices[0].delta.content ?? '';
    }
    return text;
  },
  anthropic: async (settings) => {
    const message = await new Anthropic(settings).messages.create(claude);
    return message.content[0].text;
  },
  anthropicStream: async (settings) => new Anthropic(settings).messages.stream(claude).finalText(),
};

// described is what an application can see of an error. The class is found by
// instanceof, as applications do it.
function described(error) {
  const sdk = error instanceof OpenAI.OpenAIError ? OpenAI : Anthropic;
  const classes = ['RateLimitError', 'AuthenticationError', 'PermissionDeniedError', 'APIError'];
  return {
    class: classes.find((name) => error instanceof sdk[name]) ?? error.constructor.name,
    status: error.status,
    code: error.code ?? error.error?.error?.code,
    type: error.error?.error?.type ?? error.type,
    message: error.message,
    retryAfter: Number(error.headers?.get('retry-after') ?? 0),
    shouldRetry: error.headers?.get('x-should-retry') ?? '',
  };
}

// report prints what the test reads.
export function report(result) {
  console.log(JSON.stringify(result));
}

// Makes every kind of call that the gateway meters, streamed and not, and prints what
// the SDK gives for each: {"<name>": …}. The test runs it against the provider and
// through the gateway, and compares.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

import { CHAT_MODEL, chat, claude, report } from './clients.mjs';

const openai = new OpenAI({ maxRetries: 0 });
const anthropic = new Anthropic({ maxRetries: 0 });

const streamed = { stream: true };
const withUsage = { stream: true, stream_options: { include_usage: true } };
const completion = { model: 'gpt-3.5-turbo-instruct', max_tokens: 64, prompt: 'Basalt' };
const response = { model: 'gpt-5-mini', max_output_tokens: 64, input: 'How does basalt cool?' };

// whole is a result with the id by which support finds the request.
async function whole(promise) {
  const result = await promise;
  return { ...result, request: result._request_id };
}

// listed is all that a stream yields. A chunk without usage may say `usage: null` or
// nothing: the SDK's types allow both, and the provider itself says the former
// whenever usage was asked for.
async function listed(promise) {
  const chunks = [];
  for await (const chunk of await promise) {
    chunks.push(chunk.usage === null ? { ...chunk, usage: undefined } : chunk);
  }
  return chunks;
}

// helped is what the SDK's own reader of a chat stream makes of it.
async function helped(params) {
  const stream = openai.chat.completions.stream({ ...chat, ...params });
  let chunks = 0;
  let text = '';
  stream.on('chunk', () => chunks++).on('content', (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  return { chunks, text, final: { ...final, usage: final.usage ?? undefined } };
}

const calls = {
  'chat': () => whole(openai.chat.completions.create(chat)),
  'chat, two choices': () => whole(openai.chat.completions.create({ ...chat, n: 2 })),
  'chat stream': () => listed(openai.chat.completions.create({ ...chat, ...streamed })),
  'chat stream, two choices': () => listed(openai.chat.completions.create({ ...chat, ...streamed, n: 2 })),
  'chat stream with usage': () => listed(openai.chat.completions.create({ ...chat, ...withUsage })),
  'chat stream without usage by name': () =>
    listed(openai.chat.completions.create({ ...chat, ...streamed, stream_options: { include_usage: false } })),
  'chat helper': () => helped({}),
  'chat helper with usage': () => helped({ stream_options: { include_usage: true } }),
  'completion': () => whole(openai.completions.create(completion)),
  'completion stream': () => listed(openai.completions.create({ ...completion, ...streamed })),
  'completion stream with usage': () => listed(openai.completions.create({ ...completion, ...withUsage })),
  'embeddings': () => whole(openai.embeddings.create({ model: 'text-embedding-3-small', input: ['basalt', 'granite'] })),
  'embeddings as floats': () =>
    whole(openai.embeddings.create({ model: 'text-embedding-3-small', input: 'basalt', encoding_format: 'float' })),
  'response': () => whole(openai.responses.create(response)),
  'response stream': () => listed(openai.responses.create({ ...response, ...streamed })),
  'response helper': async () => {
    const stream = openai.responses.stream(response);
    const events = [];
    stream.on('event', (event) => events.push(event.type));
    return { events, final: await stream.finalResponse() };
  },
  'models': async () => (await openai.models.list()).data,
  'model': () => whole(openai.models.retrieve(CHAT_MODEL)),

  'message': () => whole(anthropic.messages.create(claude)),
  'message stream': () => listed(anthropic.messages.create({ ...claude, ...streamed })),
  'message helper': async () => {
    const stream = anthropic.messages.stream(claude);
    const events = [];
    let text = '';
    stream.on('streamEvent', (event) => events.push(event.type)).on('text', (delta) => (text += delta));
    const final = await stream.finalMessage();
    return { events, text, final, request: stream.request_id };
  },
  'message tokens': () => whole(anthropic.messages.countTokens({ model: claude.model, messages: claude.messages })),
};

const results = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    results[name] = await call();
  } catch (error) {
    results[name] = { failed: String(error) };
  }
}
report(results);

// Vercel's AI SDK with its providers of OpenAI (Responses and Chat Completions) and of
// Anthropic.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { APICallError, RetryError, embed, generateText, streamText } from 'ai';

import { question } from './common.mjs';

export function connect({ url, key, retries = 0, patient }) {
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
  const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: key });
  const settings = (model) => ({
    model, prompt: question, maxOutputTokens: 64, maxRetries: patient ? undefined : retries,
  });
  const models = {
    responses: openai('gpt-5-mini'),
    chat: openai.chat('gpt-4o-mini'),
    messages: anthropic('claude-haiku-4-5'),
  };
  const calls = {
    'embed': async () => {
      const { embedding, usage } = await embed({
        model: openai.embedding('text-embedding-3-small'), value: question, maxRetries: patient ? undefined : retries,
      });
      return { embedding, usage };
    },
  };
  for (const [name, model] of Object.entries(models)) {
    calls[name] = async () => told(await generateText(settings(model)));
    calls[`${name} stream`] = () => streamed(settings(model));
  }
  return { calls, free: {} };
}

// told is what does not differ from call to call: there are times, ids and headers.
const told = ({ text, finishReason, usage, warnings }) => ({ text, finishReason, usage, warnings });

async function streamed(settings) {
  let failed;
  const result = streamText({ ...settings, onError: ({ error }) => (failed = error) });
  const parts = [];
  for await (const part of result.textStream) {
    parts.push(part);
  }
  if (failed) {
    throw failed;
  }
  const [text, finishReason, usage, warnings] = await Promise.all([
    result.text, result.finishReason, result.usage, result.warnings,
  ]);
  return { parts, text, finishReason, usage, warnings };
}

// described is the error of the last attempt, after whatever class wraps it.
export function described(error) {
  const retried = RetryError.isInstance(error);
  const last = retried ? error.lastError : error;
  const name = APICallError.isInstance(last) ? 'APICallError' : last.name;
  return {
    class: retried ? `RetryError of ${error.errors.length}: ${name}` : name,
    status: last.statusCode,
    message: last.message,
  };
}

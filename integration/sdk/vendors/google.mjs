// Google's client of the Gemini API.
import { ApiError, GoogleGenAI } from '@google/genai';

import { listed, question } from './common.mjs';

export function connect({ url, key, patient }) {
  const ai = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: `${url}/google` } });
  const model = 'gemini-2.5-flash';
  const params = { model, contents: question, config: { maxOutputTokens: 64 } };
  const interaction = { model, input: question };
  const once = patient ? {} : { maxRetries: 0 };
  return {
    calls: {
      'generate': () => whole(ai.models.generateContent(params)),
      'generate, two candidates': () =>
        whole(ai.models.generateContent({ ...params, config: { ...params.config, candidateCount: 2 } })),
      'generate stream': () => listed(ai.models.generateContentStream(params), bare),
      'chat': async () => {
        const chat = ai.chats.create({ model, config: params.config });
        return [bare(await chat.sendMessage({ message: question })), chat.getHistory()];
      },
      'embed': () => whole(ai.models.embedContent({ model: 'gemini-embedding-001', contents: question })),
      'interaction': () => whole(ai.interactions.create(interaction, once)),
      'interaction stream': () => listed(ai.interactions.create({ ...interaction, stream: true }, once)),
    },
    free: {
      'count tokens': () => whole(ai.models.countTokens({ model, contents: question })),
      'models': async () => (await ai.models.list()).page.map((m) => m.name),
    },
  };
}

// bare is a response without its headers: the gateway adds some.
function bare({ sdkHttpResponse, ...response }) {
  return response;
}

const whole = async (promise) => bare(await promise);

// described tells the class by name where it is not exported, as with interactions.
export function described(error) {
  return {
    class: error instanceof ApiError ? 'ApiError' : error.name,
    status: error.status,
    message: error.message,
  };
}

// The AWS client of Bedrock. It sends the key as a bearer token, or signs its requests
// with keys of AWS and sends the gateway's key in a header of its own.
import * as aws from '@aws-sdk/client-bedrock-runtime';

import { messages, question } from './common.mjs';

const CLAUDE = 'anthropic.claude-3-haiku-20240307-v1:0';
const NOVA = 'arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0';

export function connect({ url, key, patient, signed }) {
  const client = new aws.BedrockRuntimeClient({
    endpoint: `${url}/bedrock`,
    region: 'us-east-1',
    maxAttempts: patient ? undefined : 1,
    ...(signed
      ? { credentials: { accessKeyId: 'AKIAEXAMPLE', secretAccessKey: 'example' } }
      : { token: { token: key }, authSchemePreference: ['httpBearerAuth'] }),
  });
  if (signed) {
    const addKey = (next) => (args) => {
      args.request.headers['x-api-key'] = key;
      return next(args);
    };
    client.middlewareStack.add(addKey, { step: 'build' });
  }
  // bare is an output without what differs from call to call
  const send = async (command) => {
    const { $metadata, ...output } = await client.send(command);
    return { status: $metadata.httpStatusCode, attempts: $metadata.attempts, ...output };
  };

  const converse = {
    modelId: NOVA,
    messages: [{ role: 'user', content: [{ text: question }] }],
    inferenceConfig: { maxTokens: 64 },
  };
  const invoke = (modelId, body) => ({ modelId, contentType: 'application/json', body: JSON.stringify(body) });
  const claude = invoke(CLAUDE, { anthropic_version: 'bedrock-2023-05-31', max_tokens: 64, messages });
  const titan = invoke('amazon.titan-embed-text-v2:0', { inputText: question });
  return {
    calls: {
      'invoke': async () => decoded(await send(new aws.InvokeModelCommand(claude))),
      'invoke stream': async () => events(await send(new aws.InvokeModelWithResponseStreamCommand(claude))),
      'invoke for an embedding': async () => decoded(await send(new aws.InvokeModelCommand(titan))),
      'converse': () => send(new aws.ConverseCommand(converse)),
      'converse stream': async () => events(await send(new aws.ConverseStreamCommand(converse))),
    },
    free: {},
  };
}

const text = (bytes) => new TextDecoder().decode(bytes);

function decoded({ body, ...output }) {
  return { ...output, body: JSON.parse(text(body)) };
}

// events is an output whose stream has been read to its end.
async function events({ body, stream, ...output }) {
  const all = [];
  for await (const event of body ?? stream) {
    all.push(event.chunk ? JSON.parse(text(event.chunk.bytes)) : event);
  }
  return { ...output, events: all };
}

export function described(error) {
  const classes = ['ThrottlingException', 'AccessDeniedException'];
  return {
    class: classes.find((name) => error instanceof aws[name]) ?? error.name,
    status: error.$metadata?.httpStatusCode,
    message: error.message,
  };
}

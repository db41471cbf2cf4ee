/** Common clients that send a request and disconnect, each in its own way. All close with a FIN. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { Managed } from './processes.ts';
import { dial, postBytes } from './raw.ts';

export interface Asking {
  /** Disconnects as a user of this client would; resolves when the client has finished. */
  leave(): Promise<void>;
}

interface Target {
  url: string;
  key: string;
  body: Record<string, unknown>;
}

type Leaver = (target: Target) => Promise<Asking>;

/** Ignores the rejection of an aborted request, because each client rejects differently. */
const hush = (promise: Promise<unknown>): Promise<void> =>
  promise.then(
    () => undefined,
    () => undefined,
  );

/** Reads a stream to its end, so that the client holds it open as a user would. */
async function drain(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream) {
    // The content does not matter.
  }
}

export const LEAVERS: Record<string, Leaver> = {
  'fetch, aborted': async ({ url, key, body }) => {
    const control = new AbortController();
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const asked = fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal: control.signal,
    });
    const done = hush(asked.then((response) => response.text()));
    return {
      leave: () => {
        control.abort();
        return done;
      },
    };
  },
  'curl, interrupted': async ({ url, key, body }) => {
    const curl = new Managed([
      'curl',
      '-sN',
      '-X',
      'POST',
      `${url}/v1/chat/completions`,
      '-H',
      `authorization: Bearer ${key}`,
      '-H',
      'content-type: application/json',
      '-d',
      JSON.stringify(body),
    ]);
    return {
      leave: async () => {
        curl.signal('SIGINT');
        await curl.exited;
      },
    };
  },
  'a socket that half-closes': async ({ url, key, body }) => {
    const socket = await dial(url);
    socket.on('error', () => undefined).resume();
    socket.write(postBytes(`${url}/v1/chat/completions`, { authorization: `Bearer ${key}` }, body));
    return {
      leave: async () => {
        socket.end();
        setTimeout(() => socket.destroy(), 3_000);
      },
    };
  },
  'the openai SDK, aborted': async ({ url, key, body }) => {
    const control = new AbortController();
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
    const asked = client.post('/chat/completions', { body, signal: control.signal, stream: body.stream === true });
    const done = hush(
      asked.then((answer) => (body.stream === true ? drain(answer as AsyncIterable<unknown>) : undefined)),
    );
    return {
      leave: () => {
        control.abort();
        return done;
      },
    };
  },
  'the Anthropic SDK, aborted': async ({ url, key, body }) => {
    const control = new AbortController();
    const client = new Anthropic({ baseURL: url, authToken: key, apiKey: null, maxRetries: 0 });
    const asked = client.post('/v1/messages', {
      body: { max_tokens: 100_000, ...body },
      signal: control.signal,
      stream: body.stream === true,
    });
    const done = hush(
      asked.then((answer) => (body.stream === true ? drain(answer as AsyncIterable<unknown>) : undefined)),
    );
    return {
      leave: () => {
        control.abort();
        return done;
      },
    };
  },
};

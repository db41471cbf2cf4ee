import { type Dispatcher, request } from 'undici';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import type { EngineTarget } from './engine-address.ts';

interface EngineQuestion {
  /** The asker's own connection, so that no proxy from the agent's environment is used. */
  dispatcher: Dispatcher;
  signal: AbortSignal;
  /** Maximum bytes of the answer. */
  maxBytes: number;
  /** Default: GET, or POST with a body. */
  method?: 'GET' | 'POST';
  /** Sent as JSON. */
  body?: object | undefined;
}

export interface EngineAnswer {
  status: number;
  /** Undefined if the answer is longer than `maxBytes`. */
  text: string | undefined;
}

/** Asks the engine about itself, or to change itself, with its key. @throws Error if it does not answer */
export async function askEngine(
  { origin, pathPrefix, key }: EngineTarget,
  path: string,
  { dispatcher, signal, maxBytes, body, method = body === undefined ? 'GET' : 'POST' }: EngineQuestion,
): Promise<EngineAnswer> {
  const response = await request(`${origin}${pathPrefix}${path}`, {
    method,
    dispatcher,
    signal,
    headers: {
      accept: 'application/json, */*;q=0.5',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.statusCode, text: await readTextAtMost(response.body, maxBytes) };
}

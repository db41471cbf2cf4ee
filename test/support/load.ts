/** Clients that send requests while a test does something else, with counts of the outcomes. */

import { atEnd } from './processes.ts';
import { chatBody, type TestCluster } from './test-cluster.ts';

/** Maximum number of kept failures: the first ones explain the problem. */
const KEPT = 20;

type Asker = Pick<TestCluster, 'ask'>;

export interface Load {
  /** Requests that were answered with 200. */
  served: number;
  failures: string[];
  /** Stops sending, and resolves when the running requests have ended. */
  stop(): Promise<void>;
}

/** `workers` clients, each of which sends one non-streaming request after the other until it is stopped. */
export function load(cluster: Asker, workers: number, standIn: object = { delayMs: 20 }, more: object = {}): Load {
  let going = true;
  const load: Load = {
    served: 0,
    failures: [],
    stop: async () => {
      going = false;
      await done;
    },
  };
  const fail = (what: string) => {
    if (load.failures.length < KEPT) load.failures.push(`${new Date().toISOString()} ${what}`);
  };
  const work = async () => {
    while (going) {
      try {
        const response = await cluster.ask('/v1/chat/completions', chatBody(standIn, more), {
          signal: AbortSignal.timeout(60_000),
        });
        const text = await response.text();
        if (response.status === 200) load.served++;
        else fail(`${response.status} ${text}`);
      } catch (error) {
        fail(String(error));
      }
    }
  };
  const done = Promise.all(Array.from({ length: workers }, work));
  atEnd(() => {
    going = false;
  });
  return load;
}

interface Streamed {
  status: number;
  /** The received text. */
  words: string;
  /** True if the stream was complete: `[DONE]`. */
  done: boolean;
  /** The code of the error event, if there was one. */
  error: string | undefined;
  /** The longest pause between two pieces, in ms. */
  silenceMs: number;
  node: string | null;
}

/** Reads one chat stream to its end, as a careful client would. `onWords` gets the number of tokens so far. */
export async function stream(
  cluster: Asker,
  standIn: object,
  more: object = {},
  onWords: (n: number) => void = () => undefined,
): Promise<Streamed> {
  const response = await cluster.ask('/v1/chat/completions', chatBody(standIn, { stream: true, ...more }));
  const result: Streamed = {
    status: response.status,
    words: '',
    done: false,
    error: undefined,
    silenceMs: 0,
    node: response.headers.get('x-otela-node'),
  };
  const decoder = new TextDecoder();
  let text = '';
  let last = performance.now();
  let tokens = 0;
  for await (const piece of response.body ?? []) {
    const now = performance.now();
    result.silenceMs = Math.max(result.silenceMs, now - last);
    last = now;
    text += decoder.decode(piece, { stream: true });
    const events = text.split('\n\n');
    text = events.pop() ?? '';
    for (const event of events) {
      const read = readEvent(event);
      if (read.done) result.done = true;
      if (read.error !== undefined) result.error = read.error;
      if (read.words !== undefined && read.words !== '') onWords(++tokens);
      result.words += read.words ?? '';
    }
  }
  return result;
}

function readEvent(event: string): { words?: string; error?: string; done?: true } {
  if (!event.startsWith('data: ')) return {};
  const data = event.slice('data: '.length);
  if (data === '[DONE]') return { done: true };
  const parsed: unknown = JSON.parse(data);
  if (typeof parsed !== 'object' || parsed === null) return {};
  if ('error' in parsed) {
    const { error } = parsed;
    return { error: typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : 'unknown' };
  }
  const choice: unknown = 'choices' in parsed && Array.isArray(parsed.choices) ? parsed.choices[0] : undefined;
  if (typeof choice !== 'object' || choice === null || !('delta' in choice)) return {};
  const { delta } = choice;
  return typeof delta === 'object' && delta !== null && 'content' in delta && typeof delta.content === 'string'
    ? { words: delta.content }
    : {};
}

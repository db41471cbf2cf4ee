/**
 * A client with two gateways, like an SDK with a second base URL: it alternates between them until an attempt succeeds.
 */
import { randomUUID } from 'node:crypto';
import { patience } from './patience.ts';
import { atEnd } from './processes.ts';
import { chatBody } from './test-cluster.ts';

/** Maximum number of kept errors: the first ones explain the problem. */
const KEPT = 20;
/** Maximum number of kept answers: the newest. */
const ANSWERS_KEPT = 2_000;
const ANSWER_MS = 20_000;
/** Maximum number of attempts. As an SDK does, the client doubles the pause after each attempt. */
const TRIES = 6;
const BACKOFF_MS = 100;

interface TwoAddressesOptions {
  addresses: readonly { url: string }[];
  key: string;
  /** Requests per second, sent even if earlier ones have not ended. */
  perSecond: number;
  standIn?: object;
  /** Requests are streams that the gateway continues if a node is lost. A stream without its last event has failed. */
  streams?: boolean;
}

export interface Answered {
  /** `x-request-id` of the attempt that was answered. */
  id: string;
  /** The gateway that answered. */
  url: string;
  /** Nodes that the gateway tried. */
  attempts: number;
  /** The end of the model, from the response's header. */
  sunset: string | null;
  /** Milliseconds since 1970 of the first attempt, and of the answer. */
  sentAt: number;
  at: number;
}

export interface TwoAddresses {
  sent: number;
  served: number;
  /** Failed attempts. */
  retried: number;
  /** Errors that a user would have seen. */
  errors: string[];
  answered: readonly Answered[];
  /** Resolves when every sent request has ended. */
  stop(): Promise<void>;
}

export function twoAddresses({
  addresses,
  key,
  perSecond,
  standIn = { tokens: 2 },
  streams = false,
}: TwoAddressesOptions): TwoAddresses {
  const run = randomUUID();
  const underWay = new Set<Promise<void>>();
  const answered: Answered[] = [];
  const client: TwoAddresses = {
    sent: 0,
    served: 0,
    retried: 0,
    errors: [],
    answered,
    stop: async () => {
      clearInterval(timer);
      await Promise.all(underWay);
    },
  };
  const body = JSON.stringify(chatBody(standIn, { stream: streams }));
  /** Makes one attempt. Returns facts from the response, or the text of the error that a user would have seen. */
  const attempt = async (url: string, id: string): Promise<Pick<Answered, 'attempts' | 'sunset'> | string> => {
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'x-request-id': id,
          ...(streams && { 'x-otela-resume': '1' }),
        },
        body,
        signal: AbortSignal.timeout(patience(ANSWER_MS)),
      });
      const text = await response.text();
      if (response.status !== 200) return `${url} ${response.status} ${text}`;
      if (streams && !text.endsWith('data: [DONE]\n\n')) return `${url} the stream ends with ${text.slice(-200)}`;
      const { headers } = response;
      return { attempts: Number(headers.get('x-otela-attempts') ?? 1), sunset: headers.get('sunset') };
    } catch (error) {
      const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : '';
      return `${url} ${error}${cause}`;
    }
  };
  const ask = async (n: number): Promise<void> => {
    const failures: string[] = [];
    const sentAt = Date.now();
    for (let tried = 0; tried < TRIES; tried++) {
      const url = addresses[(n + tried) % addresses.length]?.url ?? '';
      const id = `req-${run}-${n}-${tried}`;
      const got = await attempt(url, id);
      if (typeof got !== 'string') {
        client.served++;
        answered.push({ id, url, ...got, sentAt, at: Date.now() });
        if (answered.length > ANSWERS_KEPT) answered.shift();
        return;
      }
      failures.push(got);
      client.retried++;
      if (tried > 0) await new Promise((resolve) => setTimeout(resolve, BACKOFF_MS * 2 ** tried));
    }
    if (client.errors.length < KEPT) client.errors.push(failures.join(' | '));
  };
  const timer = setInterval(() => {
    const one = ask(client.sent++).finally(() => underWay.delete(one));
    underWay.add(one);
  }, 1000 / perSecond);
  atEnd(() => clearInterval(timer));
  return client;
}

/** A client that knows two gateways, as an SDK with a second base URL: it asks one, and the other where the first attempt fails. */

import { patience } from './patience.ts';
import { atEnd } from './processes.ts';
import { chatBody } from './test-cluster.ts';

/** Errors kept: the first ones tell the story. */
const KEPT = 20;
/** Answers kept: the newest. */
const ANSWERS_KEPT = 2_000;
const ANSWER_MS = 20_000;
/** An SDK's own: it tries again this often, and waits a little longer each time. */
const TRIES = 6;
const BACKOFF_MS = 100;

interface TwoAddressesOptions {
  addresses: readonly { url: string }[];
  key: string;
  /** Requests a second, sent whether earlier ones have ended or not. */
  perSecond: number;
  standIn?: object;
}

export interface Answered {
  /** `x-request-id` of the attempt that was answered. */
  id: string;
  /** The gateway that answered. */
  url: string;
  /** Nodes that it asked. */
  attempts: number;
  /** When the model ends, as the answer's header has it. */
  sunset: string | null;
  /** Milliseconds since 1970 when it was sent first, and when its answer was there. */
  sentAt: number;
  at: number;
}

export interface TwoAddresses {
  sent: number;
  served: number;
  /** Attempts that failed at one address and were made at the other. */
  retried: number;
  /** What a user would have seen. */
  errors: string[];
  answered: readonly Answered[];
  /** Ends when every request that was sent has been answered. */
  stop(): Promise<void>;
}

export function twoAddresses({
  addresses,
  key,
  perSecond,
  standIn = { tokens: 2 },
}: TwoAddressesOptions): TwoAddresses {
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
  const body = JSON.stringify(chatBody(standIn));
  /** What the answer tells, or what a user would have seen. */
  const attempt = async (url: string, id: string): Promise<Pick<Answered, 'attempts' | 'sunset'> | string> => {
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-request-id': id },
        body,
        signal: AbortSignal.timeout(patience(ANSWER_MS)),
      });
      const text = await response.text();
      if (response.status !== 200) return `${url} ${response.status} ${text}`;
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
      const id = `req-${n}-${tried}`;
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

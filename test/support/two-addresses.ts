/** A client that knows two gateways, as an SDK with a second base URL: it asks one, and the other where the first attempt fails. */
import { chatBody } from './house.ts';
import { atEnd } from './processes.ts';

/** Errors kept: the first ones tell the story. */
const KEPT = 20;
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

export interface TwoAddresses {
  sent: number;
  served: number;
  /** Attempts that failed at one address and were made at the other. */
  retried: number;
  /** What a user would have seen. */
  errors: string[];
  /** Ids of requests that were answered. */
  ids: string[];
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
  const client: TwoAddresses = {
    sent: 0,
    served: 0,
    retried: 0,
    errors: [],
    ids: [],
    stop: async () => {
      clearInterval(timer);
      await Promise.all(underWay);
    },
  };
  const body = JSON.stringify(chatBody(standIn));
  const attempt = async (url: string, id: string): Promise<string | undefined> => {
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-request-id': id },
        body,
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      const text = await response.text();
      return response.status === 200 ? undefined : `${url} ${response.status} ${text}`;
    } catch (error) {
      const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : '';
      return `${url} ${error}${cause}`;
    }
  };
  const ask = async (n: number): Promise<void> => {
    const failures: string[] = [];
    for (let tried = 0; tried < TRIES; tried++) {
      const url = addresses[(n + tried) % addresses.length]?.url ?? '';
      const id = `req-${n}-${tried}`;
      const failure = await attempt(url, id);
      if (failure === undefined) {
        client.served++;
        client.ids.push(id);
        return;
      }
      failures.push(failure);
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

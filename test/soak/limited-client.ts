/** A client that sends more requests than its limit allows, to all gateways, and counts how many get through. */
import { setTimeout as delay } from 'node:timers/promises';
import { atEnd } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';

const MINUTE_MS = 60_000;
/** Half as many again as the limit allows. */
const TOO_MANY = 1.5;
const ANSWER_MS = 20_000;
const [OK, REFUSED] = [200, 429];
/** As an SDK does, the client doubles the pause after each attempt. */
const TRIES = 6;
const PAUSE_MS = 100;
/** Maximum number of kept errors. */
const KEPT = 20;

interface LimitedClientOptions {
  addresses: readonly { url: string }[];
  key: string;
  perMinute: number;
}

export class LimitedClient {
  readonly #options: LimitedClientOptions;
  readonly #underWay = new Set<Promise<void>>();
  /** When each request that got through was sent and answered. One for each; a run of 30 minutes has 9,000. */
  readonly #sentAt: number[] = [];
  readonly #answeredAt: number[] = [];
  readonly #timer: NodeJS.Timeout;
  #sent = 0;
  /** Requests that no gateway answered or refused; the first KEPT. */
  readonly errors: string[] = [];

  constructor(options: LimitedClientOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#send(), MINUTE_MS / (options.perMinute * TOO_MANY));
    atEnd(() => clearInterval(this.#timer));
  }

  #send(): void {
    const one = this.#ask(this.#sent++).finally(() => this.#underWay.delete(one));
    this.#underWay.add(one);
  }

  /** Asks the gateways one after the other until one answers or refuses. */
  async #ask(n: number): Promise<void> {
    const { addresses, key } = this.#options;
    const failures: string[] = [];
    for (let tried = 0; tried < TRIES; tried++) {
      const sentAt = performance.now();
      const url = addresses[(n + tried) % addresses.length]?.url ?? '';
      const status = await post(url, key).catch((error: unknown) => String(error));
      if (status === REFUSED) return;
      if (status === OK) {
        this.#sentAt.push(sentAt);
        this.#answeredAt.push(performance.now());
        return;
      }
      failures.push(`${url} ${status}`);
      await delay(PAUSE_MS * 2 ** tried);
    }
    if (this.errors.length < KEPT) this.errors.push(failures.join(' | '));
  }

  /**
   * Ends the client. `most`: requests that got through in one minute. A grant is between the sending of its request and
   * the answer, so that a minute with too many grants shows in both times.
   */
  async stop(): Promise<{ most: number }> {
    clearInterval(this.#timer);
    await Promise.all(this.#underWay);
    return { most: Math.min(mostInAMinute(this.#sentAt), mostInAMinute(this.#answeredAt)) };
  }
}

async function post(url: string, key: string): Promise<number> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody({ tokens: 1 })),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  await response.arrayBuffer();
  return response.status;
}

function mostInAMinute(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  let from = 0;
  let most = 0;
  for (const [to, at] of sorted.entries()) {
    while (at - (sorted[from] ?? 0) >= MINUTE_MS) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}

/**
 * Clients: open loop by a schedule that does not wait for responses, or closed loop, in which each sends again after
 * its response.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { ask, type Kind, type Result, type Target, type Wish } from './client.ts';

type Sort = readonly [Kind, Wish['path'], upTo: number];

/** The mix; the shares are cumulative. */
const MIX: readonly [Sort, ...Sort[]] = [
  ['unary', '/v1/chat/completions', 0.35],
  ['unary', '/v1/completions', 0.45],
  ['resumable', '/v1/chat/completions', 0.8],
  ['resumable', '/v1/completions', 0.9],
  ['plain', '/v1/chat/completions', 1],
];
/** Fraction of the clients that disconnect before they have their response. */
const LEAVING = 0.04;
const TOKENS = { least: 16, most: 96 } as const;
export const TOKENS_MEAN = (TOKENS.least + TOKENS.most) / 2;

export class Traffic {
  readonly results: Result[] = [];
  /** Tokens that clients got, by second since the epoch. */
  readonly tokensBySecond = new Map<number, number>();
  readonly #target: Target;
  readonly #random: () => number;
  readonly #name: string;
  readonly #asking = new Set<Promise<void>>();
  #count = 0;
  #going = true;

  constructor(name: string, target: Target, random: () => number) {
    this.#name = name;
    this.#target = target;
    this.#random = random;
  }

  get underWay(): number {
    return this.#asking.size;
  }

  /** Poisson arrivals, `perSecond` on average, until `end`. */
  async openLoop(perSecond: number): Promise<void> {
    let due = performance.now();
    while (this.#going) {
      due += (-Math.log(1 - this.#random()) * 1000) / perSecond;
      const wait = due - performance.now();
      if (wait > 0) await sleep(wait);
      if (this.#going) neverRejects(this.#ask(this.#wish()));
    }
  }

  /** `clients` clients that read streams, one after the other. */
  async closedLoop(clients: number): Promise<void> {
    const one = async () => {
      while (this.#going) {
        const result = await this.#ask({ ...this.#wish(false), kind: 'resumable', path: '/v1/chat/completions' });
        // A refused client sends again, but not immediately.
        if (result.verdict !== 'ok') await sleep(100);
      }
    };
    await Promise.all(Array.from({ length: clients }, one));
  }

  /** No new requests; resolves when the running ones have ended. */
  async end(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#asking);
  }

  #wish(leaving = true): Wish {
    const random = this.#random;
    const draw = random();
    const [kind, path] = MIX.find(([, , upTo]) => draw < upTo) ?? MIX[0];
    const wish: Wish = {
      kind,
      path,
      marker: `${this.#name}-${this.#count++}`,
      tokens: TOKENS.least + Math.floor(random() * (TOKENS.most - TOKENS.least + 1)),
    };
    return leaving && random() < LEAVING ? { ...wish, leaveMs: 100 + random() * 1_500 } : wish;
  }

  async #ask(wish: Wish): Promise<Result> {
    const asked = ask(this.#target, wish, () => {
      const second = Math.floor(Date.now() / 1000);
      this.tokensBySecond.set(second, (this.tokensBySecond.get(second) ?? 0) + 1);
    });
    const kept = asked.then((result) => void this.results.push(result));
    this.#asking.add(kept);
    await kept.finally(() => this.#asking.delete(kept));
    return asked;
  }
}

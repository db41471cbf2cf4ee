import type { Limits } from './limits.ts';
import { MinuteWindow } from './minute-window.ts';

/** What a request asks for before it runs. */
export interface Claim {
  /** Estimated; settled when the answer is over. */
  tokens: number;
}

export type Shortage =
  | { kind: 'requests' | 'tokens'; limit: number; waitMs: number }
  | { kind: 'concurrent'; limit: number }
  | { kind: 'month'; limit: number };

interface State {
  requests: { second: number; slots: number[] };
  tokens: { second: number; slots: number[] };
}

/** What one key or one project uses. Pure: milliseconds since the epoch are handed in. */
export class Meter {
  readonly #requests: MinuteWindow;
  readonly #tokens: MinuteWindow;
  running = 0;
  /** Tokens of running requests: they count against the month before they are used. */
  reserved = 0;
  /** `2026-11`, and the tokens that were used in it. */
  month = '';
  used = 0;

  constructor(state?: State) {
    this.#requests = new MinuteWindow(state?.requests);
    this.#tokens = new MinuteWindow(state?.tokens);
  }

  /** Why a claim does not fit, or undefined. A claim above a limit fits where nothing else is: else it never would. */
  shortage(limits: Limits | undefined, { tokens }: Claim, now: number): Shortage | undefined {
    if (limits === undefined) return undefined;
    const second = Math.floor(now / 1000);
    this.#turn(now);
    const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits;
    if (tokens_per_month !== undefined && this.used + this.reserved >= tokens_per_month) {
      return { kind: 'month', limit: tokens_per_month };
    }
    if (requests_per_minute !== undefined) {
      const waitS = this.#requests.waitFor(1, requests_per_minute, second);
      if (waitS > 0) return { kind: 'requests', limit: requests_per_minute, waitMs: waitS * 1000 };
    }
    if (tokens_per_minute !== undefined) {
      const waitS = this.#tokens.waitFor(Math.min(tokens, tokens_per_minute), tokens_per_minute, second);
      if (waitS > 0) return { kind: 'tokens', limit: tokens_per_minute, waitMs: waitS * 1000 };
    }
    if (concurrent_requests !== undefined && this.running >= concurrent_requests) {
      return { kind: 'concurrent', limit: concurrent_requests };
    }
    return undefined;
  }

  take({ tokens }: Claim, now: number): void {
    const second = Math.floor(now / 1000);
    this.#requests.add(1, second);
    this.#tokens.add(tokens, second);
    this.running++;
    this.reserved += tokens;
  }

  release(): void {
    this.running = Math.max(0, this.running - 1);
  }

  /** What was claimed at `then` turned out to be `used` tokens. Without `counted` nothing of it counts for the month. */
  settle(claimed: number, used: number, then: number, now: number): void {
    this.#turn(now);
    this.reserved = Math.max(0, this.reserved - claimed);
    this.used += used;
    this.#tokens.correct(used - claimed, Math.floor(then / 1000), Math.floor(now / 1000));
  }

  /** `x-ratelimit-*` as OpenAI has them, where there are such limits. */
  left(limits: Limits | undefined, now: number): RateLimits {
    const second = Math.floor(now / 1000);
    const of = (limit: number | undefined, window: MinuteWindow) =>
      limit === undefined
        ? undefined
        : { limit, remaining: Math.max(0, limit - window.sum(second)), resetS: window.emptyIn(second) };
    return {
      requests: of(limits?.requests_per_minute, this.#requests),
      tokens: of(limits?.tokens_per_minute, this.#tokens),
    };
  }

  state(): State {
    return { requests: this.#requests.state(), tokens: this.#tokens.state() };
  }

  /** Nothing in it that anybody could miss. */
  idle(now: number): boolean {
    const second = Math.floor(now / 1000);
    return this.running === 0 && this.#requests.sum(second) === 0 && this.#tokens.sum(second) === 0;
  }

  #turn(now: number): void {
    const month = new Date(now).toISOString().slice(0, 7);
    if (month === this.month) return;
    this.month = month;
    this.used = 0;
  }
}

interface Left {
  limit: number;
  remaining: number;
  resetS: number;
}

export interface RateLimits {
  requests: Left | undefined;
  tokens: Left | undefined;
}

/** Of several meters the tightest, kind by kind. */
export function rateLimitHeaders(all: readonly RateLimits[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const kind of ['requests', 'tokens'] as const) {
    const tightest = all
      .flatMap((one) => (one[kind] === undefined ? [] : [one[kind]]))
      .reduce<Left | undefined>((a, b) => (a === undefined || b.remaining < a.remaining ? b : a), undefined);
    if (tightest === undefined) continue;
    headers[`x-ratelimit-limit-${kind}`] = String(tightest.limit);
    headers[`x-ratelimit-remaining-${kind}`] = String(Math.floor(tightest.remaining));
    headers[`x-ratelimit-reset-${kind}`] = duration(tightest.resetS);
  }
  return headers;
}

/** `6m0s`, `1s`: as OpenAI writes it. */
function duration(seconds: number): string {
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

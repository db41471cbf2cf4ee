import * as z from 'zod';
import type { Limits } from '../../settings/limits-schema.ts';
import type { ReservedTokens } from './granted-request.ts';
import { MinuteWindow } from './minute-window.ts';
import {
  type MediaAmount,
  MONTH_AMOUNT_NAMES,
  MONTH_AMOUNTS,
  type MonthAmount,
  type MonthLedger,
  MonthSum,
} from './month-amounts.ts';

/** Tokens that a request reserves before it runs. */
interface TokenClaim {
  /** Estimated tokens of the request. Corrected when the usage is known. */
  tokens: number;
  /** The maximum tokens that the request sets for its response; undefined: it sets none. */
  maxTokens: number | undefined;
  /** The amount of a month that the request uses in addition to GPU time. Absent: none. */
  media?: MediaAmount | undefined;
}

/** A time by two clocks. */
export interface MeterTime {
  /** Milliseconds of a clock that is never set back. */
  ms: number;
  /** Calendar month in UTC, for example `2026-11`. */
  month: string;
}

/** All leases of a limit together are at most this part of it, which is what they may leave unused. */
const LEASED_SHARE = 0.02;

/** What a meter can lease. */
export interface Leasable {
  requests: number;
  tokens: number;
}

export type LimitShortage =
  /** `running`: the request may fit soon, because running requests may use fewer tokens than they have reserved. */
  | { kind: 'requests' | 'tokens'; limit: number; waitMs: number; running: boolean }
  /** The response's maximum is above the limit per minute, so the request would never fit. */
  | { kind: 'answer'; limit: number; maxTokens: number }
  | { kind: 'concurrent'; limit: number }
  /** `running`: the month is not used up, but running requests reserve the rest of it. */
  | { kind: 'month'; limit: number; running: boolean }
  | { kind: (typeof MONTH_AMOUNTS)[MonthAmount]['shortage']; limit: number };

const window = z.array(z.tuple([z.number(), z.number()]));
const stateSchema = z.object({ at: z.number(), requests: window, tokens: window });
type State = z.infer<typeof stateSchema>;

/** Counts the usage of one key, user or project, for all models or for one. Pure. */
export class LimitMeter {
  readonly #booked: MonthSum;
  readonly #amounts: Readonly<Record<MonthAmount, MonthSum>>;
  readonly #requests: MinuteWindow;
  readonly #tokens: MinuteWindow;
  running = 0;
  /** Requests and tokens of leases that are not used yet. The windows and the tokens below contain them. */
  #leasedRequests = 0;
  #leasedTokens = 0;
  /** Tokens of requests whose usage is not known yet. */
  #estimated = 0;
  /** Tokens of requests that are not in the month's sum yet, estimated or known. */
  #unbooked = 0;

  /** @param state the result of `state`, from this version or another; its times may be of another clock */
  constructor(ledger: MonthLedger, amounts: (amount: MonthAmount) => MonthLedger, state?: unknown, now = 0) {
    this.#booked = new MonthSum(ledger);
    const sumOf = (amount: MonthAmount) => new MonthSum(amounts(amount));
    this.#amounts = { gpuMs: sumOf('gpuMs'), audioMs: sumOf('audioMs'), images: sumOf('images') };
    const known = stateSchema.safeParse(state).data;
    // If the clock was fast when the state was saved, the saved time is in the future. It would block the key until
    // then.
    const at = Math.min(known?.at ?? now, now);
    this.#requests = new MinuteWindow(known?.requests, at);
    this.#tokens = new MinuteWindow(known?.tokens, at);
  }

  /**
   * Returns all reasons why a claim does not fit. A claim that is larger than the whole limit of tokens per minute fits
   * if the minute has no other tokens; without this exception it could never run.
   */
  shortages(limits: Limits | undefined, { tokens, maxTokens = 0, media }: TokenClaim, now: MeterTime): LimitShortage[] {
    if (limits === undefined) return [];
    const short: LimitShortage[] = [];
    const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits;
    if (tokens_per_minute !== undefined && maxTokens > tokens_per_minute)
      short.push({ kind: 'answer', limit: tokens_per_minute, maxTokens });
    if (tokens_per_month !== undefined) {
      const used = this.#booked.used(now.month) + this.#unbooked;
      if (used >= tokens_per_month)
        short.push({ kind: 'month', limit: tokens_per_month, running: used - this.#estimated < tokens_per_month });
    }
    for (const amount of MONTH_AMOUNT_NAMES) {
      const limit = limits[MONTH_AMOUNTS[amount].limit];
      if (limit === undefined || (amount !== 'gpuMs' && amount !== media)) continue;
      if (this.#unitsOf(amount, now) >= limit) short.push({ kind: MONTH_AMOUNTS[amount].shortage, limit });
    }
    if (requests_per_minute !== undefined) {
      const waitMs = this.#requests.waitFor(1, requests_per_minute, now.ms);
      if (waitMs > 0) short.push({ kind: 'requests', limit: requests_per_minute, waitMs, running: false });
    }
    // A request that counts no tokens fits any token limit.
    if (tokens_per_minute !== undefined && tokens > 0) {
      const wanted = Math.min(tokens, tokens_per_minute);
      const waitMs = this.#tokens.waitFor(wanted, tokens_per_minute, now.ms);
      const running = this.#tokens.sum(now.ms) - this.#estimated + wanted <= tokens_per_minute;
      if (waitMs > 0) short.push({ kind: 'tokens', limit: tokens_per_minute, waitMs, running });
    }
    if (concurrent_requests !== undefined && this.running >= concurrent_requests)
      short.push({ kind: 'concurrent', limit: concurrent_requests });
    return short;
  }

  take(tokens: number, now: MeterTime): void {
    this.#requests.add(1, now.ms);
    this.#tokens.add(tokens, now.ms);
    this.running++;
    this.#estimated += tokens;
    this.#unbooked += tokens;
  }

  /**
   * Returns how much one of `processes` may lease now. Undefined: a limit counts what cannot be known in advance, such
   * as places of concurrent requests.
   */
  leasable(limits: Limits | undefined, processes: number, now: MeterTime): Leasable | undefined {
    const free: Leasable = { requests: Number.POSITIVE_INFINITY, tokens: Number.POSITIVE_INFINITY };
    if (limits === undefined) return free;
    const { requests_per_minute, tokens_per_minute, tokens_per_month, gpu_seconds_per_month } = limits;
    if (limits.concurrent_requests !== undefined) return undefined;
    if (
      gpu_seconds_per_month !== undefined &&
      this.#unitsOf('gpuMs', now) >= gpu_seconds_per_month * (1 - LEASED_SHARE)
    )
      return undefined;
    const part = (limit: number, leased: number, used: number) =>
      Math.min((limit * LEASED_SHARE) / processes, limit * LEASED_SHARE - leased, limit - used);
    if (requests_per_minute !== undefined)
      free.requests = part(requests_per_minute, this.#leasedRequests, this.#requests.sum(now.ms));
    if (tokens_per_minute !== undefined)
      free.tokens = part(tokens_per_minute, this.#leasedTokens, this.#tokens.sum(now.ms));
    if (tokens_per_month !== undefined)
      free.tokens = Math.min(
        free.tokens,
        part(tokens_per_month, this.#leasedTokens, this.#booked.used(now.month) + this.#unbooked),
      );
    return free;
  }

  /** Counts a lease as used. */
  lease(requests: number, tokens: number, now: MeterTime): void {
    this.#leasedRequests += requests;
    this.#leasedTokens += tokens;
    this.#requests.add(requests, now.ms);
    this.#tokens.add(tokens, now.ms);
    this.#estimated += tokens;
    this.#unbooked += tokens;
  }

  /** Takes a part of a lease back, which was granted at `at`. */
  unlease(requests: number, tokens: number, at: number, now: MeterTime): void {
    this.#leasedRequests = Math.max(0, this.#leasedRequests - requests);
    this.#leasedTokens = Math.max(0, this.#leasedTokens - tokens);
    this.#requests.correct(-requests, at, now.ms);
    this.change({ counted: -tokens, estimated: -tokens, unbooked: -tokens }, at, now);
  }

  release(): void {
    this.running = Math.max(0, this.running - 1);
  }

  /** Adds these differences to the counts of a request. `countedAt`: when the request was counted first. */
  change({ counted, estimated, unbooked }: ReservedTokens, countedAt: number, now: MeterTime): void {
    this.#estimated = Math.max(0, this.#estimated + estimated);
    this.#unbooked = Math.max(0, this.#unbooked + unbooked);
    this.#tokens.correct(counted, countedAt, now.ms);
  }

  /** Adds a request that was counted before this meter was created. The saved windows already contain it. */
  resume({ estimated, unbooked }: ReservedTokens, isRunning: boolean): void {
    if (isRunning) this.running++;
    this.#estimated += estimated;
    this.#unbooked += unbooked;
  }

  /**
   * Adds tokens to the sum of `month`, which may be an earlier month. `tokens` is negative if an estimate was too high.
   */
  book(tokens: number, month: string, now: MeterTime): void {
    this.#booked.add(tokens, month, now.month);
  }

  /** Adds what one attempt used. */
  bookAmount(amount: MonthAmount, used: number, month: string, now: MeterTime): void {
    if (used > 0) this.#amounts[amount].add(Math.round(used), month, now.month);
  }

  /** Returns the sum of the month, in the unit of its limit. */
  #unitsOf(amount: MonthAmount, { month }: MeterTime): number {
    return this.#amounts[amount].used(month) / MONTH_AMOUNTS[amount].perUnit;
  }

  /** Returns the values of OpenAI's `x-ratelimit-*` headers, for the limits that are set. */
  left(limits: Limits | undefined, now: MeterTime): RateLimits {
    // The sum is computed only for a limit that is set, because it is read from storage.
    const ofMonth = (limit: number | undefined, used: () => number) =>
      limit === undefined ? undefined : { limit, remaining: Math.max(0, limit - used()), resetMs: undefined };
    const amountLeft = (amount: MonthAmount) =>
      ofMonth(limits?.[MONTH_AMOUNTS[amount].limit], () => this.#unitsOf(amount, now));
    const of = (limit: number | undefined, counted: MinuteWindow) =>
      limit === undefined
        ? undefined
        : { limit, remaining: Math.max(0, limit - counted.sum(now.ms)), resetMs: counted.emptyIn(now.ms) };
    return {
      requests: of(limits?.requests_per_minute, this.#requests),
      tokens: of(limits?.tokens_per_minute, this.#tokens),
      'tokens-month': ofMonth(limits?.tokens_per_month, () => this.#booked.used(now.month) + this.#unbooked),
      [MONTH_AMOUNTS.gpuMs.header]: amountLeft('gpuMs'),
      [MONTH_AMOUNTS.audioMs.header]: amountLeft('audioMs'),
      [MONTH_AMOUNTS.images.header]: amountLeft('images'),
    };
  }

  /** Returns the current usage of each limit, for the dashboard. */
  uses(limits: Limits | undefined, now: MeterTime): LimitUse[] {
    if (limits === undefined) return [];
    const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits;
    const use = (limit: LimitUse['limit'], allowed: number | undefined, used: number): LimitUse[] =>
      allowed === undefined ? [] : [{ limit, allowed, used: Math.max(0, Math.round(used)) }];
    return [
      ...use('requests_per_minute', requests_per_minute, this.#requests.sum(now.ms)),
      ...use('tokens_per_minute', tokens_per_minute, this.#tokens.sum(now.ms)),
      ...use('concurrent_requests', concurrent_requests, this.running),
      ...use('tokens_per_month', tokens_per_month, this.#booked.used(now.month) + this.#unbooked),
      ...MONTH_AMOUNT_NAMES.flatMap((amount) => {
        const { limit } = MONTH_AMOUNTS[amount];
        return use(limit, limits[limit], this.#unitsOf(amount, now));
      }),
    ];
  }

  state(now: MeterTime): State {
    return { at: now.ms, requests: this.#requests.state(now.ms), tokens: this.#tokens.state(now.ms) };
  }

  /** True if all counts are as in a new meter, so that this meter can be dropped. */
  idle(now: MeterTime): boolean {
    const empty = this.#requests.sum(now.ms) === 0 && this.#tokens.sum(now.ms) === 0;
    return empty && this.running === 0 && this.#unbooked === 0 && this.#leasedRequests === 0;
  }
}

export const LIMIT_NAMES = [
  'requests_per_minute',
  'tokens_per_minute',
  'concurrent_requests',
  'tokens_per_month',
  MONTH_AMOUNTS.gpuMs.limit,
  MONTH_AMOUNTS.audioMs.limit,
  MONTH_AMOUNTS.images.limit,
] as const;

/** The usage of one limit. Running requests count with their reservations. */
export interface LimitUse {
  limit: (typeof LIMIT_NAMES)[number];
  allowed: number;
  used: number;
  /** The model whose limit this is; absent: the limit is for all models. */
  model?: string;
}

interface RemainingLimit {
  limit: number;
  remaining: number;
  /** Milliseconds until the limit is reset; undefined: it is reset on the first of the next month, UTC. */
  resetMs: number | undefined;
}

const REMAINING_HEADERS = [
  'requests',
  'tokens',
  'tokens-month',
  MONTH_AMOUNTS.gpuMs.header,
  MONTH_AMOUNTS.audioMs.header,
  MONTH_AMOUNTS.images.header,
] as const;
type RateLimits = Record<(typeof REMAINING_HEADERS)[number], RemainingLimit | undefined>;

/** Returns the headers for several meters: for each kind of limit, the values of the meter with the least left. */
export function rateLimitHeaders(all: readonly RateLimits[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const kind of REMAINING_HEADERS) {
    let tightest: RemainingLimit | undefined;
    for (const { [kind]: left } of all)
      if (left !== undefined && (tightest === undefined || left.remaining < tightest.remaining)) tightest = left;
    if (tightest === undefined) continue;
    headers[`x-ratelimit-limit-${kind}`] = String(tightest.limit);
    headers[`x-ratelimit-remaining-${kind}`] = String(Math.floor(tightest.remaining));
    const { resetMs } = tightest;
    if (resetMs !== undefined) headers[`x-ratelimit-reset-${kind}`] = duration(Math.ceil(resetMs / 1000));
  }
  return headers;
}

/** Formats seconds as OpenAI does: `6m0s` or `1s`. */
function duration(seconds: number): string {
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

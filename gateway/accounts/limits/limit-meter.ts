import * as z from 'zod';
import type { Limits } from '../../settings/limits-schema.ts';
import type { ReservedTokens } from './granted-request.ts';
import { MinuteWindow } from './minute-window.ts';

/** Tokens that a request reserves before it runs. */
interface TokenClaim {
  /** Estimated tokens of the request. Corrected when the usage is known. */
  tokens: number;
  /** The maximum tokens that the request sets for its response; undefined: it sets none. */
  maxTokens: number | undefined;
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
  | { kind: 'gpu-month'; limit: number };

/** Stored usage by month, in tokens or in GPU milliseconds. */
export interface MonthLedger {
  used(month: string): number;
  write(month: string, used: number): void;
}

const window = z.array(z.tuple([z.number(), z.number()]));
const stateSchema = z.object({ at: z.number(), requests: window, tokens: window });
type State = z.infer<typeof stateSchema>;

/** Counts the usage of one key, user or project, for all models or for one. Pure. */
export class LimitMeter {
  readonly #ledger: MonthLedger;
  readonly #gpuLedger: MonthLedger;
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
  #month = '';
  #used = 0;
  #gpuUsedMs = 0;

  /** @param state the result of `state`, from this version or another; its times may be of another clock */
  constructor(ledger: MonthLedger, gpuLedger: MonthLedger, state?: unknown, now = 0) {
    this.#ledger = ledger;
    this.#gpuLedger = gpuLedger;
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
  shortages(limits: Limits | undefined, { tokens, maxTokens = 0 }: TokenClaim, now: MeterTime): LimitShortage[] {
    if (limits === undefined) return [];
    this.#rollOver(now);
    const short: LimitShortage[] = [];
    const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits;
    if (tokens_per_minute !== undefined && maxTokens > tokens_per_minute)
      short.push({ kind: 'answer', limit: tokens_per_minute, maxTokens });
    const used = this.#used + this.#unbooked;
    if (tokens_per_month !== undefined && used >= tokens_per_month)
      short.push({ kind: 'month', limit: tokens_per_month, running: used - this.#estimated < tokens_per_month });
    const { gpu_seconds_per_month: gpuSeconds } = limits;
    if (gpuSeconds !== undefined && this.#gpuUsedMs >= gpuSeconds * 1_000)
      short.push({ kind: 'gpu-month', limit: gpuSeconds });
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
    this.#rollOver(now);
    const free: Leasable = { requests: Number.POSITIVE_INFINITY, tokens: Number.POSITIVE_INFINITY };
    if (limits === undefined) return free;
    const { requests_per_minute, tokens_per_minute, tokens_per_month, gpu_seconds_per_month } = limits;
    if (limits.concurrent_requests !== undefined) return undefined;
    if (gpu_seconds_per_month !== undefined && this.#gpuUsedMs >= gpu_seconds_per_month * 1_000 * (1 - LEASED_SHARE))
      return undefined;
    const part = (limit: number, leased: number, used: number) =>
      Math.min((limit * LEASED_SHARE) / processes, limit * LEASED_SHARE - leased, limit - used);
    if (requests_per_minute !== undefined)
      free.requests = part(requests_per_minute, this.#leasedRequests, this.#requests.sum(now.ms));
    if (tokens_per_minute !== undefined)
      free.tokens = part(tokens_per_minute, this.#leasedTokens, this.#tokens.sum(now.ms));
    if (tokens_per_month !== undefined)
      free.tokens = Math.min(free.tokens, part(tokens_per_month, this.#leasedTokens, this.#used + this.#unbooked));
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
    this.#rollOver(now);
    const before = month === this.#month ? this.#used : this.#ledger.used(month);
    const used = sum(before, tokens);
    if (month === this.#month) this.#used = used;
    this.#ledger.write(month, used);
  }

  /** Adds the GPU time of one attempt in milliseconds. GPU time is not reserved. */
  bookGpu(ms: number, month: string, now: MeterTime): void {
    if (ms <= 0) return;
    this.#rollOver(now);
    const before = month === this.#month ? this.#gpuUsedMs : this.#gpuLedger.used(month);
    const used = sum(before, Math.round(ms));
    if (month === this.#month) this.#gpuUsedMs = used;
    this.#gpuLedger.write(month, used);
  }

  /** Returns the values of OpenAI's `x-ratelimit-*` headers, for the limits that are set. */
  left(limits: Limits | undefined, now: MeterTime): RateLimits {
    this.#rollOver(now);
    const ofMonth = (limit: number | undefined, used: number) =>
      limit === undefined ? undefined : { limit, remaining: Math.max(0, limit - used), resetMs: undefined };
    const of = (limit: number | undefined, counted: MinuteWindow) =>
      limit === undefined
        ? undefined
        : { limit, remaining: Math.max(0, limit - counted.sum(now.ms)), resetMs: counted.emptyIn(now.ms) };
    return {
      requests: of(limits?.requests_per_minute, this.#requests),
      tokens: of(limits?.tokens_per_minute, this.#tokens),
      'tokens-month': ofMonth(limits?.tokens_per_month, this.#used + this.#unbooked),
      'gpu-seconds-month': ofMonth(limits?.gpu_seconds_per_month, this.#gpuUsedMs / 1_000),
    };
  }

  /** Returns the current usage of each limit, for the dashboard. */
  uses(limits: Limits | undefined, now: MeterTime): LimitUse[] {
    if (limits === undefined) return [];
    this.#rollOver(now);
    const { requests_per_minute, tokens_per_minute, concurrent_requests, tokens_per_month } = limits;
    const use = (limit: LimitUse['limit'], allowed: number | undefined, used: number): LimitUse[] =>
      allowed === undefined ? [] : [{ limit, allowed, used: Math.max(0, Math.round(used)) }];
    return [
      ...use('requests_per_minute', requests_per_minute, this.#requests.sum(now.ms)),
      ...use('tokens_per_minute', tokens_per_minute, this.#tokens.sum(now.ms)),
      ...use('concurrent_requests', concurrent_requests, this.running),
      ...use('tokens_per_month', tokens_per_month, this.#used + this.#unbooked),
      ...use('gpu_seconds_per_month', limits.gpu_seconds_per_month, this.#gpuUsedMs / 1_000),
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

  /**
   * Reads the ledger again if the month changed, also to an earlier month: a fast clock may have begun the next month
   * too soon, and is then corrected.
   */
  #rollOver({ month }: MeterTime): void {
    if (month === this.#month) return;
    this.#month = month;
    this.#used = this.#ledger.used(month);
    this.#gpuUsedMs = this.#gpuLedger.used(month);
  }
}

/** Adds two counts. The sum is between 0 and the largest exact integer, because a larger sum would be stored wrong. */
function sum(before: number, more: number): number {
  return Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, before + more));
}

export const LIMIT_NAMES = [
  'requests_per_minute',
  'tokens_per_minute',
  'concurrent_requests',
  'tokens_per_month',
  'gpu_seconds_per_month',
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

const REMAINING_HEADERS = ['requests', 'tokens', 'tokens-month', 'gpu-seconds-month'] as const;
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

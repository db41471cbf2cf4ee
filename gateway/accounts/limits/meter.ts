import * as z from 'zod';
import type { ReservedTokens } from './granted-request.ts';
import type { Limits } from './limits.ts';
import { MinuteWindow } from './minute-window.ts';

/** What a request reserves before it runs, in tokens. */
interface TokenClaim {
  /** Estimated; corrected when the usage is known. */
  tokens: number;
  /** The bound that the request sets for its response. */
  maxTokens: number | undefined;
}

/** A time, by two clocks. */
export interface MeterTime {
  /** Milliseconds of a clock that never goes back. */
  ms: number;
  /** Calendar month in UTC such as `2026-11`. */
  month: string;
}

export type LimitShortage =
  /** `running`: it would fit without the reservations of running requests, and they may turn out to need less. */
  | { kind: 'requests' | 'tokens'; limit: number; waitMs: number; running: boolean }
  /** It would not fit even into an empty minute. */
  | { kind: 'answer'; limit: number; maxTokens: number }
  | { kind: 'concurrent'; limit: number }
  /** `running`: the month is not used up, but running requests reserve the rest. */
  | { kind: 'month'; limit: number; running: boolean }
  | { kind: 'gpu-month'; limit: number };

/** Usage by month, in tokens or in GPU milliseconds. It outlives the meter. */
export interface MonthLedger {
  used(month: string): number;
  write(month: string, used: number): void;
}

const window = z.array(z.tuple([z.number(), z.number()]));
const stateSchema = z.object({ at: z.number(), requests: window, tokens: window });
type State = z.infer<typeof stateSchema>;

/** The usage of one key, user or project, for all models or for one. Pure. */
export class LimitMeter {
  readonly #ledger: MonthLedger;
  readonly #gpuLedger: MonthLedger;
  readonly #requests: MinuteWindow;
  readonly #tokens: MinuteWindow;
  running = 0;
  /** Tokens of requests without known usage. */
  #estimated = 0;
  /** Tokens of requests that are not booked for a month yet, estimated or known. */
  #unbooked = 0;
  #month = '';
  #used = 0;
  #gpuUsedMs = 0;

  /** @param state what `state` returned, in this version or another; its time may be of another clock */
  constructor(ledger: MonthLedger, gpuLedger: MonthLedger, state?: unknown, now = 0) {
    this.#ledger = ledger;
    this.#gpuLedger = gpuLedger;
    const known = stateSchema.safeParse(state).data;
    // If the state was saved by a clock that was fast, its time would lock the key until that time.
    const at = Math.min(known?.at ?? now, now);
    this.#requests = new MinuteWindow(known?.requests, at);
    this.#tokens = new MinuteWindow(known?.tokens, at);
  }

  /**
   * All reasons why a claim does not fit. A claim above a limit fits if nothing else is counted; otherwise it would
   * never fit.
   */
  shortages(limits: Limits | undefined, { tokens, maxTokens = 0 }: TokenClaim, now: MeterTime): LimitShortage[] {
    if (limits === undefined) return [];
    this.#turn(now);
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
    // A request that counts no tokens fits any limit of tokens.
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

  release(): void {
    this.running = Math.max(0, this.running - 1);
  }

  /** Changes the counts of a request by these differences. `countedAt`: when it was counted. */
  change({ counted, estimated, unbooked }: ReservedTokens, countedAt: number, now: MeterTime): void {
    this.#estimated = Math.max(0, this.#estimated + estimated);
    this.#unbooked = Math.max(0, this.#unbooked + unbooked);
    this.#tokens.correct(counted, countedAt, now.ms);
  }

  /** Adds a request that was counted before this meter was created: the saved windows already contain it. */
  resume({ estimated, unbooked }: ReservedTokens, isRunning: boolean): void {
    if (isRunning) this.running++;
    this.#estimated += estimated;
    this.#unbooked += unbooked;
  }

  /** Tokens were used in `month`, which may be an earlier month. Below 0 if an estimate was too high. */
  book(tokens: number, month: string, now: MeterTime): void {
    this.#turn(now);
    const before = month === this.#month ? this.#used : this.#ledger.used(month);
    const used = sum(before, tokens);
    if (month === this.#month) this.#used = used;
    this.#ledger.write(month, used);
  }

  /** GPU time of one attempt in milliseconds. Nothing is reserved of it. */
  bookGpu(ms: number, month: string, now: MeterTime): void {
    if (ms <= 0) return;
    this.#turn(now);
    const before = month === this.#month ? this.#gpuUsedMs : this.#gpuLedger.used(month);
    const used = sum(before, Math.round(ms));
    if (month === this.#month) this.#gpuUsedMs = used;
    this.#gpuLedger.write(month, used);
  }

  /** The values of OpenAI's `x-ratelimit-*` headers, for the limits that are set. */
  left(limits: Limits | undefined, now: MeterTime): RateLimits {
    this.#turn(now);
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

  /** The current usage of each limit, for the dashboard. */
  uses(limits: Limits | undefined, now: MeterTime): LimitUse[] {
    if (limits === undefined) return [];
    this.#turn(now);
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

  /** True if a new meter would have the same state. */
  idle(now: MeterTime): boolean {
    const empty = this.#requests.sum(now.ms) === 0 && this.#tokens.sum(now.ms) === 0;
    return empty && this.running === 0 && this.#unbooked === 0;
  }

  /**
   * Reads the ledger again when the month changes: if a clock was fast at the end of a month, the meter returns to that
   * month's usage.
   */
  #turn({ month }: MeterTime): void {
    if (month === this.#month) return;
    this.#month = month;
    this.#used = this.#ledger.used(month);
    this.#gpuUsedMs = this.#gpuLedger.used(month);
  }
}

/** A sum above the largest exact integer would be stored wrong. */
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

/** The usage of one limit. Running requests count with their reservation. */
export interface LimitUse {
  limit: (typeof LIMIT_NAMES)[number];
  allowed: number;
  used: number;
  /** Set if only this model is limited. */
  model?: string;
}

interface Left {
  limit: number;
  remaining: number;
  /** Undefined: the first of the next month, UTC. */
  resetMs: number | undefined;
}

const REMAINING_HEADERS = ['requests', 'tokens', 'tokens-month', 'gpu-seconds-month'] as const;
type RateLimits = Record<(typeof REMAINING_HEADERS)[number], Left | undefined>;

/** The headers of several meters: for each kind those of the tightest meter. */
export function rateLimitHeaders(all: readonly RateLimits[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const kind of REMAINING_HEADERS) {
    let tightest: Left | undefined;
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

/** `6m0s` or `1s`, in OpenAI's format. */
function duration(seconds: number): string {
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

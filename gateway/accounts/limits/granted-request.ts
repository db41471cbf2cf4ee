import * as z from 'zod';
import type { TokenForecast, UsedTokens } from './token-estimator.ts';

/**
 * Maximum attempts of one request that are counted separately. The usage of further attempts is added to the last of
 * them.
 */
const ATTEMPTS_MAX = 32;

const stateSchema = z.object({
  keyId: z.string(),
  process: z.string().optional(),
  meters: z.array(z.string()).max(64),
  bodyBytes: z.number().optional(),
  maxTokens: z.number().optional(),
  counts: z.enum(['nothing', 'prompt', 'answer']),
  reserved: z.number(),
  concurrent: z.boolean(),
  ageMs: z.number(),
  running: z.boolean(),
  expected: z.number().nullable(),
  isComplete: z.boolean(),
  sinceMs: z.number().nullable(),
  uses: z.array(z.tuple([z.number(), z.number(), z.number()])).max(ATTEMPTS_MAX),
});
type State = z.infer<typeof stateSchema>;

/** What a granted request adds to each of its meters, in tokens. */
export interface ReservedTokens {
  /** Tokens that count against the limits per minute. */
  counted: number;
  /** The part of `counted` that is only estimated. */
  estimated: number;
  /** The part of `counted` that is not yet in the month's sum. */
  unbooked: number;
}

interface NewHold extends TokenForecast {
  keyId: string;
  process?: string | undefined;
  meters: readonly string[];
  /** Estimated tokens that were reserved when the request was granted. */
  reserved: number;
  concurrent: boolean;
}

interface UsedByAttempt extends UsedTokens {
  attempt: number;
  isComplete: boolean;
}

interface Use {
  tokens: number;
  /** The part of `tokens` that is already in the month's sum. */
  booked: number;
}

/**
 * One granted request. While it runs, its limits count its estimate or the usage of its attempts, whichever is larger.
 * When it is over, they count the usage. It is over if the response of an attempt was complete, or if the usage of all
 * attempts that `release` announced has been reported. Pure: times are milliseconds of the limiter's clock.
 */
export class GrantedRequest {
  readonly keyId: string;
  /** The process that serves the request; undefined: there is only one, or an earlier version granted it. */
  readonly process: string | undefined;
  /** Ids of the meters that count this request. */
  readonly meters: readonly string[];
  readonly forecast: TokenForecast;
  /**
   * True if a limit on concurrent requests applies. The request then occupies its place until the caller calls
   * `release`.
   */
  readonly concurrent: boolean;
  readonly at: number;
  /** True while this request counts as one of the concurrent requests. */
  running = true;
  /**
   * When the caller released the request. Before the release: when an attempt's response was complete; undefined if
   * there is no such attempt.
   */
  since: number | undefined;
  #reserved: number;
  #expected: number | undefined;
  #isComplete = false;
  readonly #uses = new Map<number, Use>();

  constructor({ keyId, process, meters, counts, bodyBytes, maxTokens, concurrent, reserved }: NewHold, at: number) {
    this.keyId = keyId;
    this.process = process;
    this.meters = meters;
    this.forecast = { counts, bodyBytes, maxTokens };
    this.concurrent = concurrent;
    this.at = at;
    this.#reserved = reserved;
  }

  /** True if the usage is final and nothing is reserved any more. */
  get isOver(): boolean {
    return this.#isComplete || (this.#expected !== undefined && this.#uses.size >= this.#expected);
  }

  /** True if the request is over, its tokens are in the month's sum, and no further call will name it. */
  get isDone(): boolean {
    return this.isOver && !(this.running && this.concurrent) && [...this.#uses.values()].every(isBooked);
  }

  get counted(): ReservedTokens {
    const uses = [...this.#uses.values()];
    const used = uses.reduce((sum, { tokens }) => sum + tokens, 0);
    const booked = uses.reduce((sum, one) => sum + one.booked, 0);
    const counted = this.isOver ? used : Math.max(this.#reserved, used);
    return { counted, estimated: counted - used, unbooked: counted - booked };
  }

  /** True if the usage of at least one attempt is known. */
  get isKnown(): boolean {
    return this.#uses.size > 0;
  }

  /** Called when the request has ended. `attempts`: how many of its attempts will report usage. */
  release(attempts: number, now: number): void {
    this.#expected = attempts;
    this.since = now;
  }

  /** Sets the total usage of one attempt. A repeated report of an attempt replaces the previous one. */
  report({ attempt, prompt, completion, isComplete }: UsedByAttempt, now: number): Use {
    const use = this.#entryOf(attempt);
    use.tokens = prompt + completion;
    if (!isComplete) return use;
    this.#isComplete = true;
    this.since ??= now;
    return use;
  }

  /** Like `report`, for usage that was already added to the month's sum. */
  book(used: UsedByAttempt, now: number): void {
    const use = this.report(used, now);
    use.booked = use.tokens;
  }

  /** Removes the estimate. From now on only tokens in the month's sum count. */
  drop(): void {
    this.#reserved = 0;
    for (const [attempt, { booked }] of this.#uses) this.#uses.set(attempt, { tokens: booked, booked });
  }

  #entryOf(attempt: number): Use {
    const name = this.#uses.size < ATTEMPTS_MAX || this.#uses.has(attempt) ? attempt : Math.max(...this.#uses.keys());
    const known = this.#uses.get(name);
    if (known !== undefined) return known;
    const use = { tokens: 0, booked: 0 };
    this.#uses.set(name, use);
    return use;
  }

  state(now: number): State {
    const { keyId, process, meters, concurrent, running, since } = this;
    const { counts, bodyBytes, maxTokens } = this.forecast;
    return {
      keyId,
      ...(process !== undefined && { process }),
      meters: [...meters],
      counts,
      ...(bodyBytes !== undefined && { bodyBytes }),
      ...(maxTokens !== undefined && { maxTokens }),
      concurrent,
      running,
      reserved: this.#reserved,
      ageMs: now - this.at,
      expected: this.#expected ?? null,
      isComplete: this.#isComplete,
      sinceMs: since === undefined ? null : now - since,
      uses: [...this.#uses].map(([attempt, { tokens, booked }]) => [attempt, tokens, booked]),
    };
  }

  /** Restores a granted request from `state`; undefined if `state` is not valid. */
  static of(state: unknown, now: number): GrantedRequest | undefined {
    const { data } = stateSchema.safeParse(state);
    if (data === undefined) return undefined;
    const { bodyBytes, maxTokens } = data;
    const hold = new GrantedRequest({ ...data, bodyBytes, maxTokens }, now - Math.max(0, data.ageMs));
    hold.running = data.running;
    hold.since = data.sinceMs === null ? undefined : now - Math.max(0, data.sinceMs);
    hold.#expected = data.expected ?? undefined;
    hold.#isComplete = data.isComplete;
    for (const [attempt, tokens, booked] of data.uses) hold.#uses.set(attempt, { tokens, booked });
    return hold;
  }
}

function isBooked({ tokens, booked }: Use): boolean {
  return tokens === booked;
}

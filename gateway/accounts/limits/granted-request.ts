import * as z from 'zod';
import type { TokenForecast, UsedTokens } from './token-estimator.ts';

/** Attempts of one request whose use is kept apart. Those beyond it are added to the last. */
const ATTEMPTS_MAX = 32;

const stateSchema = z.object({
  keyId: z.string(),
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

/** What a hold adds to each of its meters, in tokens. */
export interface ReservedTokens {
  /** Against the limits per minute. */
  counted: number;
  /** The part of `counted` that is only estimated. */
  estimated: number;
  /** The part of `counted` that no month has yet. */
  unbooked: number;
}

interface NewHold extends TokenForecast {
  keyId: string;
  meters: readonly string[];
  /** The estimate, in tokens. */
  reserved: number;
  concurrent: boolean;
}

interface UsedByAttempt extends UsedTokens {
  attempt: number;
  isComplete: boolean;
}

interface Use {
  tokens: number;
  /** How much of `tokens` is in the month's sum. */
  booked: number;
}

/**
 * One granted request. While it runs it counts as its estimate or as what its attempts have used, whichever is more; when it is over, as
 * what they used. It is over when an attempt was answered whole, or when the asker has said how many attempts to expect and all are known.
 * Pure: times are milliseconds of the limiter's clock.
 */
export class GrantedRequest {
  readonly keyId: string;
  /** Ids of the meters that count it. */
  readonly meters: readonly string[];
  readonly forecast: TokenForecast;
  /** A limit of concurrent requests applies, so the asker will say when its client has the whole answer. */
  readonly concurrent: boolean;
  readonly at: number;
  /** It has a place among the concurrent requests. */
  running = true;
  /** When the asker released it, or when an attempt was answered whole. */
  since: number | undefined;
  #reserved: number;
  #expected: number | undefined;
  #isComplete = false;
  readonly #uses = new Map<number, Use>();

  constructor({ keyId, meters, counts, bodyBytes, maxTokens, concurrent, reserved }: NewHold, at: number) {
    this.keyId = keyId;
    this.meters = meters;
    this.forecast = { counts, bodyBytes, maxTokens };
    this.concurrent = concurrent;
    this.at = at;
    this.#reserved = reserved;
  }

  /** Nothing is reserved any more: what it used is all that it will use. */
  get isOver(): boolean {
    return this.#isComplete || (this.#expected !== undefined && this.#uses.size >= this.#expected);
  }

  /** It is over, all of it is booked, and nobody will mention it again. */
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

  /** Whether anything is known of what it used. */
  get isKnown(): boolean {
    return this.#uses.size > 0;
  }

  /** The asker is done with it and expects so many reports of attempts. */
  release(attempts: number, now: number): void {
    this.#expected = attempts;
    this.since = now;
  }

  /** What one attempt used in all. Said again, it replaces what was said before. */
  report({ attempt, prompt, completion, isComplete }: UsedByAttempt, now: number): Use {
    const use = this.#entryOf(attempt);
    use.tokens = prompt + completion;
    if (!isComplete) return use;
    this.#isComplete = true;
    this.since ??= now;
    return use;
  }

  /** The same, and the month's sum has it. */
  book(used: UsedByAttempt, now: number): void {
    const use = this.report(used, now);
    use.booked = use.tokens;
  }

  /** Only what is booked counts from now on. */
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
    const { keyId, meters, concurrent, running, since } = this;
    const { counts, bodyBytes, maxTokens } = this.forecast;
    return {
      keyId,
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

  /** The hold that `state` describes; undefined if it describes none. */
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

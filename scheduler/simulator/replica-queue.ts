import { NONE, type Sequence } from './sequence.ts';

/** A request that was sent to a replica and waits there from `arrival` on. */
interface SentRequest {
  request: number;
  arrival: number;
  input: number;
  output: number;
  /** True if its prompt's keys and values were computed elsewhere (disaggregated prefill). */
  stored: boolean;
  /** Chained hashes of the prompt's full blocks, of `prefixBlockTokens` each. */
  hashes?: readonly number[];
}

/**
 * A queue of requests. The first to arrive is served first, but preempted requests go before all others. Bounded by
 * what the caller pushes.
 */
export class Queue {
  readonly #prefixHit: number;
  readonly #sent = new Line<SentRequest>();
  readonly #waiting = new Line<Sequence>();
  /** Preempted requests. The oldest is at the end of the array, and runs next. */
  readonly #returning: Sequence[] = [];

  constructor(prefixHit: number) {
    this.#prefixHit = prefixHit;
  }

  /** Must be called in order of arrival. */
  push(sent: SentRequest): void {
    this.#sent.push(sent);
  }

  giveBack(sequence: Sequence): void {
    this.#returning.push(sequence);
  }

  get waiting(): number {
    return this.#waiting.length + this.#returning.length;
  }

  /** Number of requests, including those that have not arrived. */
  get all(): number {
    return this.waiting + this.#sent.length;
  }

  /** Time of the next arrival, if there is one. */
  get nextArrival(): number | undefined {
    return this.#sent.head?.arrival;
  }

  get head(): Sequence | undefined {
    return this.#returning.at(-1) ?? this.#waiting.head;
  }

  takeHead(): void {
    if (this.#returning.pop() === undefined) this.#waiting.shift();
  }

  /**
   * Removes and returns the newest request. Requests that have not arrived count as newer than all others. Undefined if
   * the queue is empty.
   */
  takeNewest(): Sequence | undefined {
    const sent = this.#sent.pop();
    if (sent !== undefined) return this.#sequenceOf(sent);
    return this.#waiting.pop() ?? this.#returning.shift();
  }

  /** All requests: first those that have not arrived, then waiting ones, then preempted ones. */
  sequences(): Sequence[] {
    return [...this.#sent.rest().map((sent) => this.#sequenceOf(sent)), ...this.#waiting.rest(), ...this.#returning];
  }

  /** Admits all requests that have arrived by `now`. */
  arrive(now: number): void {
    for (let next = this.#sent.head; next !== undefined && next.arrival <= now; next = this.#sent.head) {
      this.#sent.shift();
      this.#waiting.push(this.#sequenceOf(next));
    }
  }

  #sequenceOf(sent: SentRequest): Sequence {
    const cached = Math.min(sent.input - 1, Math.floor(sent.input * this.#prefixHit));
    return {
      request: sent.request,
      prompt: sent.stored ? 0 : sent.input - cached,
      cached: sent.stored ? sent.input : cached,
      hashes: sent.hashes ?? NONE,
      shared: 0,
      own: NONE,
      prefilled: 0,
      fixed: 0,
      remaining: sent.output,
      firstToken: sent.stored ? sent.arrival : -1,
      batch: 0,
      base: 0,
      since: 0,
      phase: 0,
      epoch: 0,
      running: false,
    };
  }
}

/**
 * Removed entries stay in the array until there are more than this many, and until they are more than half of the
 * array. Shifting an array of millions for each entry would take too long.
 */
const COMPACT_ABOVE = 4096;

class Line<T> {
  #items: T[] = [];
  #at = 0;

  get length(): number {
    return this.#items.length - this.#at;
  }

  get head(): T | undefined {
    return this.#items[this.#at];
  }

  rest(): T[] {
    return this.#items.slice(this.#at);
  }

  push(item: T): void {
    this.#items.push(item);
  }

  pop(): T | undefined {
    return this.length > 0 ? this.#items.pop() : undefined;
  }

  shift(): void {
    this.#at++;
    if (this.#at > COMPACT_ABOVE && this.#at * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#at);
      this.#at = 0;
    }
  }
}

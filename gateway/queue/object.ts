import { DurableObject } from 'cloudflare:workers';
import { type Turn, Turns } from '../../shared/routing/turns.ts';
import type { Env } from '../env.ts';
import type { PlaceAnswer, PlaceRequest } from './place.ts';

/** No setting makes a queue longer: each waiter is an open request of the object. */
const PLACES_MAX = 10_000;

/** Busy nodes whose ends are listened for at once. */
const WATCHED_MAX = 64;
/** A node's object that cannot be asked is asked again after this. */
const WATCH_AGAIN_MS = 1_000;

/** Turns of so long are counted, to tell who is refused when to come again. */
const RATE_MS = 30_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 60_000;

export interface QueueDepth {
  waiting: number;
  interactive: number;
  batch: number;
  /** Nodes that are listened to. */
  watched: number;
}

/**
 * Who waits for a node that serves one model, because none is free. Asked only then: a request that finds a node never comes here.
 *
 * Nothing survives: who waited asks again when its request to this object breaks.
 */
export class QueueObject extends DurableObject<Env> {
  #turns: Turns<PlaceRequest> | undefined;
  /** By name, one for each place of the queue. */
  readonly #waiters = new Map<string, (answer: PlaceAnswer) => void>();
  /** Sessions; at most WATCHED_MAX. */
  readonly #watched = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | null = null;
  /** Turns given since `#countedFrom`. */
  #given = 0;
  #countedFrom = Date.now();

  override async fetch(request: Request): Promise<Response> {
    const asked = (await request.json()) as PlaceRequest;
    const { signal } = request;
    const answer = signal.aborted ? LATE : await this.#wait(asked, signal);
    return Response.json(answer);
  }

  depth(): QueueDepth {
    const queue = this.#turns?.queue;
    return {
      waiting: queue?.size ?? 0,
      interactive: queue?.count('interactive') ?? 0,
      batch: queue?.count('batch') ?? 0,
      watched: this.#watched.size,
    };
  }

  #wait(asked: PlaceRequest, signal: AbortSignal): Promise<PlaceAnswer> {
    const turns = this.#turnsFor(asked);
    const { name, busy, waitMs } = asked;
    // Its former question broke, and has nobody left who listens.
    if (turns.leave(name)) this.#waiters.get(name)?.(LATE);
    const now = Date.now();
    if (asked.back) turns.back(asked, busy, now);
    else {
      const entered = turns.enter(asked, busy, now);
      if (entered.kind === 'full') return Promise.resolve(this.#full());
      if (entered.pushedOut !== undefined) this.#waiters.get(entered.pushedOut.name)?.(this.#full());
    }
    return new Promise((resolve) => {
      const leave = () => {
        turns.leave(name);
        answer(LATE);
        this.#look();
      };
      const timer = setTimeout(leave, waitMs);
      const answer = (given: PlaceAnswer) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', leave);
        if (this.#waiters.get(name) === answer) this.#waiters.delete(name);
        resolve(given);
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#waiters.set(name, answer);
      for (const session of busy) this.#watch(session);
      this.#look();
    });
  }

  /** A queue that nobody is in takes the length that its next visitor knows of. */
  #turnsFor({ places }: PlaceRequest): Turns<PlaceRequest> {
    if (this.#turns === undefined || this.#turns.idle) {
      this.#turns = new Turns(Math.max(1, Math.min(places, PLACES_MAX)));
    }
    return this.#turns;
  }

  /** When a place will have become free, by the pace of late. */
  #full(): PlaceAnswer {
    const elapsed = Math.max(1, Date.now() - this.#countedFrom);
    const perTurn = this.#given === 0 ? RETRY_MAX_MS : elapsed / this.#given;
    const some = (this.#turns?.size ?? 0) / 4;
    return { kind: 'full', retryAfterMs: Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, perTurn * some)) };
  }

  /** Gives the turns that are due, and sets the clock for the next. */
  #look(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    const now = Date.now();
    for (const turn of turns.due(now)) this.#give(turn, now);
    clearTimeout(this.#timer);
    const at = turns.wakeAt;
    this.#timer = at === undefined ? null : setTimeout(() => this.#look(), Math.max(1, at - now));
  }

  #give({ place, session }: Turn<PlaceRequest>, now: number): void {
    if (now - this.#countedFrom > RATE_MS) {
      this.#given = Math.floor(this.#given / 2);
      this.#countedFrom = now - RATE_MS / 2;
    }
    this.#given++;
    this.#waiters.get(place.name)?.(session === undefined ? { kind: 'turn' } : { kind: 'turn', session });
  }

  /** Listens for the ends of requests at a busy node while somebody waits for one. */
  #watch(session: string): void {
    if (this.#watched.has(session) || this.#watched.size >= WATCHED_MAX) return;
    this.#watched.add(session);
    this.ctx.waitUntil(this.#follow(session).finally(() => this.#watched.delete(session)));
  }

  async #follow(session: string): Promise<void> {
    let seen: number | undefined;
    while (this.#turns?.wants(session)) {
      try {
        const askedAt = Date.now();
        const ended = await this.env.TUNNEL.getByName(session).ended(seen ?? -1);
        // Smaller: another instance counts anew.
        const count = seen === undefined ? 0 : ended >= seen ? ended - seen : 1;
        const before = seen;
        seen = ended;
        if (count > 0) {
          this.#turns.freed(session, count);
          this.#look();
        } else if (ended === before && Date.now() - askedAt < WATCH_AGAIN_MS) await pause(); // it has too many listeners
      } catch {
        seen = undefined;
        await pause();
      }
    }
  }
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, WATCH_AGAIN_MS));
}

const LATE: PlaceAnswer = { kind: 'late' };

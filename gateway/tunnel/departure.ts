import { TransientMap } from '../../shared/collections/transient-map.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import type { Asker } from './ask.ts';
import { type AttemptFailure, type AttemptRequest, nameOf } from './attempt.ts';

/** `left`: the client did, or never came. */
export type Ending = 'whole' | 'left' | AttemptFailure;

/** A Worker that is gone never asks; so many endings wait for their Workers. */
const KEPT_MAX = 10_000;

/** Objects hardly die where they stay; but a Worker must not wait for one that did for ever. */
const ASK_MS = 30_000;

/** What object and Worker tell each other of one answer that leaves. */
export interface Farewell {
  readonly ended: PromiseWithResolvers<Ending>;
}

/** By the attempt's name; of answers that leave, so at most KEPT_MAX. */
const farewells = new TransientMap<string, Farewell>();

/** The object's side: an answer is about to leave. */
export function departing(name: string): Farewell {
  const farewell = { ended: Promise.withResolvers<Ending>() };
  farewells.set(name, farewell);
  const oldest = farewells.size > KEPT_MAX ? farewells.keys().next().value : undefined;
  if (oldest !== undefined) farewells.delete(oldest);
  return farewell;
}

/** It does not leave that way after all. */
export function stays(name: string): void {
  farewells.delete(name);
}

/** The Worker's side of an answer that leaves by the outlet of its object. */
export class Departure {
  /** What the answer's rest goes by. */
  readonly number: number;
  readonly #asker: Asker;
  readonly #session: string;
  readonly #open: AttemptRequest;

  constructor(asker: Asker, session: string, open: AttemptRequest, number: number) {
    this.#asker = asker;
    this.#session = session;
    this.#open = open;
    this.number = number;
    asker.leaving.on(() => this.leave());
  }

  #stub() {
    return this.#asker.env.TUNNEL.getByName(this.#session);
  }

  /** Nobody takes it, or nobody will. */
  leave(): void {
    const { requestId, attempt } = this.#open;
    this.#asker.ctx.waitUntil(Promise.resolve(this.#stub().leave(requestId, attempt)).catch(() => {}));
  }

  /**
   * The response is made; resolves when its last byte is on its way to the client.
   * @throws AttemptError when it broke off, anything else when the client has left
   */
  async over(): Promise<void> {
    const name = nameOf(this.#open);
    const farewell = farewells.get(name);
    farewells.delete(name);
    const how = farewell === undefined ? 'lost' : await this.#waitFor(farewell.ended.promise);
    if (how === 'left') throw new Error('the client left');
    if (how !== 'whole') throw new AttemptError(how, 'the answer broke off');
  }

  async #waitFor(ending: Promise<Ending>): Promise<Ending> {
    const { requestId, attempt } = this.#open;
    const lost = Promise.withResolvers<Ending>();
    const timer = setInterval(async () => {
      const held = await Promise.resolve(this.#stub().holds(requestId, attempt)).catch(() => false);
      if (!held) lost.resolve('lost');
    }, ASK_MS);
    try {
      return await Promise.race([ending, lost.promise]);
    } finally {
      clearInterval(timer);
    }
  }
}

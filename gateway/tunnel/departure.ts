import { PathError } from '../../shared/asking/path-error.ts';
import type { Asker } from './ask.ts';
import { type AttemptFailure, type AttemptRequest, nameOf } from './attempt.ts';

/** `left`: the client did, or never came. */
export type Ending = 'whole' | 'left' | AttemptFailure;

/** A Worker that is gone never asks; so many endings wait for their Workers. */
const KEPT_MAX = 10_000;

/** Objects hardly die where they stay; but a Worker must not wait for one that did for ever. */
const ASK_MS = 30_000;

/** By the attempt's name. Worker and object share them where they share an isolate: mailbox.ts says what may cross. */
const endings = new Map<string, PromiseWithResolvers<Ending>>();

/** The object's side: an answer is about to leave. Returns what is to be called with how it ended. */
export function departing(name: string): (how: Ending) => void {
  const ending = Promise.withResolvers<Ending>();
  endings.set(name, ending);
  const oldest = endings.keys().next().value;
  if (endings.size > KEPT_MAX && oldest !== undefined) endings.delete(oldest);
  return ending.resolve;
}

/** It does not leave that way after all. */
export function stays(name: string): void {
  endings.delete(name);
}

/** The Worker's side of an answer that leaves by the outlet of its object. */
export class Departure {
  /** As OUTLET_HEADER of its response. */
  readonly marker: string;
  readonly #asker: Asker;
  readonly #session: string;
  readonly #open: AttemptRequest;

  constructor(asker: Asker, session: string, open: AttemptRequest, marker: string) {
    this.#asker = asker;
    this.#session = session;
    this.#open = open;
    this.marker = marker;
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

  /** Its last byte is on its way to the client. @throws PathError when it broke off, anything else when the client has left */
  async over(): Promise<void> {
    const name = nameOf(this.#open);
    const ending = endings.get(name);
    endings.delete(name);
    const how = ending === undefined ? 'lost' : await this.#waitFor(ending.promise);
    if (how === 'left') throw new Error('the client left');
    if (how !== 'whole') throw new PathError(how, 'the answer broke off');
  }

  async #waitFor(ending: Promise<Ending>): Promise<Ending> {
    const { requestId, attempt } = this.#open;
    const lost = Promise.withResolvers<Ending>();
    // Also for the runtime, which would take a request that waits for nothing of its own for one that hangs.
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

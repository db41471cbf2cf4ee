import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { AttemptError } from '../../../shared/upstream/attempt-error.ts';
import type { Asker } from '../ask.ts';
import { type AttemptFailure, type AttemptRequest, nameOf } from '../attempt.ts';

/** `left`: the client did, or never came. */
export type Ending = 'whole' | 'left' | AttemptFailure;

/** A Worker that is gone never asks; so many endings wait for their Workers. */
const KEPT_MAX = 10_000;

/** Objects hardly die where they stay; but a Worker must not wait for one that did for ever. */
const ASK_MS = 30_000;

/** What object and Worker tell each other of one answer that leaves. */
export interface OffloadCompletion {
  readonly ended: PromiseWithResolvers<Ending>;
}

/** By the attempt's name; of answers that leave, so at most KEPT_MAX. */
const completions = new TransientMap<string, OffloadCompletion>();

/** The object's side: an answer is about to leave. */
export function expectCompletion(name: string): OffloadCompletion {
  const completion = { ended: Promise.withResolvers<Ending>() };
  completions.set(name, completion);
  const oldest = completions.size > KEPT_MAX ? completions.keys().next().value : undefined;
  if (oldest !== undefined) completions.delete(oldest);
  return completion;
}

/** It does not leave that way after all. */
export function forgetCompletion(name: string): void {
  completions.delete(name);
}

/** The Worker's side of an offloaded answer. */
export class OffloadedResponse {
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
    asker.client.on(() => this.leave());
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
    const completion = completions.get(name);
    completions.delete(name);
    const how = completion === undefined ? 'lost' : await this.#waitFor(completion.ended.promise);
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

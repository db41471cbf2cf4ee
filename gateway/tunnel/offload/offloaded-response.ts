import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { type AttemptFailure, type AttemptRequest, attemptName } from '../../../shared/upstream/attempt.ts';
import { AttemptError } from '../../../shared/upstream/attempt-error.ts';
import type { RequestScope } from '../call/call-tunnel.ts';

/** `left`: the client left, or never came. */
export type OffloadEnding = 'whole' | 'left' | AttemptFailure;

/** Endings that wait for their Workers. A Worker that is gone never asks for its ending. */
const KEPT_MAX = 10_000;

/** On a host whose objects stay, an object hardly ever dies. Without this a Worker would wait for ever for one that did. */
const ASK_MS = 30_000;

/** How the object tells the Worker that an offloaded answer has ended. */
export interface OffloadCompletion {
  readonly ended: PromiseWithResolvers<OffloadEnding>;
}

/** By the name of the attempt whose answer is offloaded; at most KEPT_MAX. */
const completions = new TransientMap<string, OffloadCompletion>();

/** The object's side: an answer is about to be offloaded. */
export function expectCompletion(name: string): OffloadCompletion {
  const completion = { ended: Promise.withResolvers<OffloadEnding>() };
  completions.set(name, completion);
  const oldest = completions.size > KEPT_MAX ? completions.keys().next().value : undefined;
  if (oldest !== undefined) completions.delete(oldest);
  return completion;
}

/** The answer is not offloaded after all. */
export function forgetCompletion(name: string): void {
  completions.delete(name);
}

/** The Worker's side of an offloaded answer. */
export class OffloadedResponse {
  /** Names the rest of the answer. */
  readonly number: number;
  readonly #scope: RequestScope;
  readonly #session: string;
  readonly #open: AttemptRequest;

  constructor(scope: RequestScope, session: string, open: AttemptRequest, number: number) {
    this.#scope = scope;
    this.#session = session;
    this.#open = open;
    this.number = number;
    scope.client.on(() => this.leave());
  }

  #stub() {
    return this.#scope.env.TUNNEL.getByName(this.#session);
  }

  /** The client takes no more of the answer, or will take none. */
  leave(): void {
    const { requestId, attempt } = this.#open;
    this.#scope.ctx.waitUntil(Promise.resolve(this.#stub().leave(requestId, attempt)).catch(() => {}));
  }

  /**
   * The response is made; resolves when its last byte is on its way to the client.
   * @throws AttemptError when it broke off, anything else when the client has left
   */
  async over(): Promise<void> {
    const name = attemptName(this.#open);
    const completion = completions.get(name);
    completions.delete(name);
    const how = completion === undefined ? 'lost' : await this.#waitFor(completion.ended.promise);
    if (how === 'left') throw new Error('the client left');
    if (how !== 'whole') throw new AttemptError(how, 'the answer broke off');
  }

  async #waitFor(ending: Promise<OffloadEnding>): Promise<OffloadEnding> {
    const { requestId, attempt } = this.#open;
    const lost = Promise.withResolvers<OffloadEnding>();
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

import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import { type AttemptFailure, type AttemptRequest, attemptName } from '../../../shared/attempts/attempt-request.ts';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { Env } from '../../env.ts';

/** How an offloaded response ended. `left`: the client disconnected, or never took the response. */
export type OffloadEnding = 'whole' | 'left' | AttemptFailure;

/** Maximum completions that wait for their Workers. A Worker that is gone never asks for its completion. */
const COMPLETIONS_MAX = 10_000;

/**
 * Interval at which the object is asked whether it still holds the attempt. On a host whose objects stay, an object
 * hardly ever dies; without this check a Worker would wait forever for an object that died.
 */
const CHECK_MS = 30_000;

/** Reports from the object to the Worker that an offloaded response has ended. */
export interface OffloadCompletion {
  readonly ended: PromiseWithResolvers<OffloadEnding>;
}

/** Completions by the name of the offloaded attempt, at most COMPLETIONS_MAX. */
const completions = new TransientMap<string, OffloadCompletion>();

/** Called by the object before it offloads a response. */
export function expectCompletion(name: string): OffloadCompletion {
  const completion = { ended: Promise.withResolvers<OffloadEnding>() };
  completions.set(name, completion);
  const oldest = completions.size > COMPLETIONS_MAX ? completions.keys().next().value : undefined;
  if (oldest !== undefined) completions.delete(oldest);
  return completion;
}

/** Called if the response is not offloaded after all. */
export function forgetCompletion(name: string): void {
  completions.delete(name);
}

/** The parts of the Worker's request that an offloaded response needs. */
interface OffloadScope {
  env: Pick<Env, 'TUNNEL'>;
  ctx: { waitUntil(work: Promise<unknown>): void };
  client: Pick<ClientDisconnect, 'on'>;
}

/** The Worker's side of an offloaded response. */
export class OffloadedResponse {
  /** Number that identifies the rest of the response. */
  readonly number: number;
  readonly #scope: OffloadScope;
  readonly #session: string;
  readonly #open: AttemptRequest;

  constructor(scope: OffloadScope, session: string, open: AttemptRequest, number: number) {
    this.#scope = scope;
    this.#session = session;
    this.#open = open;
    this.number = number;
    scope.client.on(() => this.leave());
  }

  #stub() {
    return this.#scope.env.TUNNEL.getByName(this.#session);
  }

  /** Called if the client stopped reading the response, or will not read it. */
  leave(): void {
    const { requestId, attempt } = this.#open;
    this.#scope.ctx.waitUntil(Promise.resolve(this.#stub().leave(requestId, attempt)).catch(() => {}));
  }

  /**
   * Resolves when the last byte of the response is being sent to the client.
   * @throws AttemptError if the response was cut; any other error if the client disconnected
   */
  async over(): Promise<void> {
    const name = attemptName(this.#open);
    const completion = completions.get(name);
    completions.delete(name);
    const how = completion === undefined ? 'lost' : await this.#waitFor(completion.ended.promise);
    if (how === 'left') throw new Error('the client disconnected');
    if (how !== 'whole') throw new AttemptError(how, 'the response broke off');
  }

  async #waitFor(ending: Promise<OffloadEnding>): Promise<OffloadEnding> {
    const { requestId, attempt } = this.#open;
    const lost = Promise.withResolvers<OffloadEnding>();
    const look = async () => {
      const held = await Promise.resolve(this.#stub().holds(requestId, attempt)).catch(() => false);
      if (!held) lost.resolve('lost');
    };
    const timer = setInterval(() => neverRejects(look()), CHECK_MS);
    try {
      return await Promise.race([ending, lost.promise]);
    } finally {
      clearInterval(timer);
    }
  }
}

import type { LiveState } from '../../shared/routing/node-load.ts';
import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Env } from '../env.ts';
import type { ObjectStub } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import type { RegistryObject } from '../registry/registry-object.ts';
import type { AgentSocket } from './agent-socket.ts';

/** Rate at which one session may send records to the registry: a burst of this many, then one per this many ms. */
const RECORD_BURST = 20;
const RECORD_EVERY_MS = 200;

/** Tries per call, over about three seconds, because the registry object may be moving. */
const ATTEMPTS = 5;

type Registry = ObjectStub<RegistryObject>;

/** A session's own record that is sent to the registry. */
interface RecordUpdate {
  peer: AgentSocket;
  sequence: number;
  update: Uint8Array;
}

interface RegistryNotifierOptions {
  session: string;
  env: Pick<Env, 'REGISTRY'>;
  waitUntil(work: Promise<void>): void;
  /** The registry refused the session's record, and the socket is closed. */
  refused(peer: AgentSocket): void;
  /** The registry did not answer for some seconds. */
  lost(): void;
}

/**
 * Reports to the registry what one tunnel observes. Calls are sent sequentially: "closed" must not overtake the
 * previous "opened".
 */
export class RegistryNotifier {
  readonly #options: RegistryNotifierOptions;
  #queue: Promise<void> = Promise.resolve();
  /** A record that waits for its turn. A newer record replaces it. */
  #waiting: { update: RecordUpdate } | undefined;
  /** Time up to which the allowance for records is spent; at most the burst behind the current time. */
  #pace = 0;
  /**
   * The registry knows that the agent is silent: the agent did not acknowledge an opening and has sent nothing since.
   */
  #silent = false;

  constructor(options: RegistryNotifierOptions) {
    this.#options = options;
  }

  get #registry(): Registry {
    return this.#options.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  }

  #send(call: (registry: Registry) => Promise<void>): void {
    const { lost, waitUntil } = this.#options;
    this.#queue = this.#queue.then(async () => {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        try {
          return await call(this.#registry);
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
        }
      }
      lost();
    });
    waitUntil(this.#queue);
  }

  record(update: RecordUpdate): void {
    if (this.#waiting !== undefined) {
      this.#waiting.update = update;
      return;
    }
    const waiting = { update };
    this.#waiting = waiting;
    this.#send(async (registry) => {
      await this.#paced();
      if (this.#waiting === waiting) this.#waiting = undefined;
      await this.#publish(registry, waiting.update);
    });
  }

  /**
   * Limits the cost of a flood of records at the registry to a few signatures a second. Of the waiting records only the
   * newest is sent.
   */
  async #paced(): Promise<void> {
    const now = steadyNow();
    this.#pace = Math.max(this.#pace + RECORD_EVERY_MS, now - RECORD_BURST * RECORD_EVERY_MS);
    if (this.#pace > now) await new Promise((resolve) => setTimeout(resolve, this.#pace - now));
  }

  async #publish(registry: Registry, { peer, sequence, update }: RecordUpdate): Promise<void> {
    const { session, refused } = this.#options;
    const published = await registry.publish(session, peer.ticket.bytes, update);
    if (published.kind === 'stored') return peer.link.put({ type: 'recorded', sequence });
    const over = published.kind === 'over';
    peer.close(
      over ? CLOSE_CODES.over : CLOSE_CODES.protocol,
      over ? published.reason : `bad record: ${published.reason}`,
    );
    refused(peer);
  }

  /**
   * The agent did not acknowledge an opening. `gone`: there is no socket. If the object lost the socket with its
   * memory, no event closes it.
   */
  silent(gone: boolean): void {
    if (this.#silent) return;
    this.#silent = true;
    const { session } = this.#options;
    this.#send((registry) => (gone ? registry.closed(session) : registry.suspect(session)));
  }

  /** The agent sent something. A suspicion is not final: an agent that sends again gets requests again. */
  heard(): void {
    if (!this.#silent) return;
    this.#silent = false;
    this.#send((registry) => registry.trust(this.#options.session));
  }

  /** The session's socket is gone. Later calls reach the registry after this call. */
  closed(): void {
    this.#silent = false;
    this.#waiting = undefined;
    this.#send((registry) => registry.closed(this.#options.session));
  }

  /** Sent out of order with the other calls, and not retried: a lost state is sent again a second later. */
  live(news: LiveState): void {
    this.#options.waitUntil(this.#registry.live(this.#options.session, news).catch(() => {}));
  }

  /** Not retried: the count is only a statistic. */
  double(): void {
    this.#options.waitUntil(this.#registry.double().catch(() => {}));
  }

  /**
   * Probes another session. Asks the registry and not that session's object, because its agent must be the first to
   * touch an object, and any name would create one.
   */
  probe(session: string): Promise<ProbeVerdict> {
    return this.#registry.probe(session).catch(() => 'unknown' as const);
  }
}

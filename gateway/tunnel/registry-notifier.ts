import type { LiveState } from '../../shared/routing/node-load.ts';
import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Env } from '../env.ts';
import type { ObjectStub } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import type { RegistryObject } from '../registry/registry-object.ts';
import type { AgentSocket } from './agent-socket.ts';

/**
 * Rate at which one session may send records to the registry: a burst of RECORD_BURST, then one per RECORD_EVERY_MS.
 */
const RECORD_BURST = 20;
const RECORD_EVERY_MS = 200;

/** Attempts per call, over about three seconds, because the registry object may be moving. */
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
  /** Closes the socket of a session whose record the registry refused. */
  close(peer: AgentSocket, code: number, reason: string): void;
  /** Called if the registry did not answer for some seconds. */
  lost(): void;
}

/**
 * Reports to the registry what one tunnel observes. Calls are sent one after another, because the call `closed` must
 * not overtake an earlier call, which reports that the tunnel is open.
 */
export class RegistryNotifier {
  readonly #options: RegistryNotifierOptions;
  #queue: Promise<void> = Promise.resolve();
  /** A record that waits to be sent. A newer record replaces it. */
  #waiting: { update: RecordUpdate } | undefined;
  /**
   * Time of the latest record in a schedule with one record per RECORD_EVERY_MS, by `steadyNow`. The schedule may be at
   * most RECORD_BURST records behind the clock; each of these may be sent immediately.
   */
  #pace = 0;
  /** True if the registry suspects the agent: the agent did not acknowledge an opening and has sent nothing since. */
  #isSuspected = false;

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
   * Waits so that a flood of records costs the registry only a few signatures a second. Of the waiting records only the
   * newest is sent.
   */
  async #paced(): Promise<void> {
    const now = steadyNow();
    this.#pace = Math.max(this.#pace + RECORD_EVERY_MS, now - RECORD_BURST * RECORD_EVERY_MS);
    if (this.#pace > now) await new Promise((resolve) => setTimeout(resolve, this.#pace - now));
  }

  async #publish(registry: Registry, { peer, sequence, update }: RecordUpdate): Promise<void> {
    const { session, close } = this.#options;
    const published = await registry.publish(session, peer.ticket.bytes, update);
    if (published.kind === 'stored') return peer.link.put({ type: 'recorded', sequence });
    if (published.kind === 'over') close(peer, CLOSE_CODES.over, published.reason);
    else close(peer, CLOSE_CODES.protocol, `bad record: ${published.reason}`);
  }

  /**
   * Reports that the agent did not acknowledge an opening. `gone`: there is no socket. This must be reported here,
   * because no close event follows if the object lost the socket with its memory.
   */
  suspect(gone: boolean): void {
    if (this.#isSuspected) return;
    this.#isSuspected = true;
    const { session } = this.#options;
    this.#send((registry) => (gone ? registry.closed(session) : registry.suspect(session)));
  }

  /** Reports that the agent sent something. A suspicion is not final: an agent that sends again gets requests again. */
  clearSuspicion(): void {
    if (!this.#isSuspected) return;
    this.#isSuspected = false;
    this.#send((registry) => registry.trust(this.#options.session));
  }

  /** Reports that the session's socket is gone. Later calls reach the registry after this one. */
  closed(): void {
    this.#isSuspected = false;
    this.#waiting = undefined;
    this.#send((registry) => registry.closed(this.#options.session));
  }

  /**
   * Reports live state. Sent concurrently with the other calls, and not retried: a lost state is sent again a second
   * later.
   */
  live(news: LiveState): void {
    this.#options.waitUntil(this.#registry.live(this.#options.session, news).catch(() => {}));
  }

  /**
   * Reports that an engine completed an attempt whose request had moved. Not retried, because the count is only a
   * statistic.
   */
  double(): void {
    this.#options.waitUntil(this.#registry.double().catch(() => {}));
  }

  /**
   * Checks whether another session answers. This asks the registry, and not the session's tunnel object: the agent must
   * be the first to call its object, and a call with a wrong name would create an object.
   */
  probe(session: string): Promise<ProbeVerdict> {
    return this.#registry.probe(session).catch(() => 'unknown' as const);
  }
}

import type { LiveState } from '../../shared/routing/load.ts';
import { CLOSE_CODES } from '../../shared/wire/close.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Env } from '../env.ts';
import type { ObjectStub } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import type { RegistryObject } from '../registry/object.ts';
import type { AgentSocket } from './socket.ts';

/** Records that one session may tell the registry: so many at once, then one each so many ms. */
const RECORD_BURST = 20;
const RECORD_EVERY_MS = 200;

/** The registry object may just be moving: tried so often, over some three seconds. */
const ATTEMPTS = 5;

type Registry = ObjectStub<RegistryObject>;

/** A session's own record on its way to the registry. */
interface RecordUpdate {
  peer: AgentSocket;
  sequence: number;
  update: Uint8Array;
}

interface RegistryNotifierOptions {
  session: string;
  env: Pick<Env, 'REGISTRY'>;
  waitUntil(work: Promise<void>): void;
  /** The registry did not take the session's record, and the socket is closed. */
  refused(peer: AgentSocket): void;
  /** The registry did not answer for some seconds. */
  lost(): void;
}

/** Tells the registry what one tunnel sees. Calls go out one after the other: a "closed" must not overtake the "opened" before it. */
export class RegistryNotifier {
  readonly #options: RegistryNotifierOptions;
  #queue: Promise<void> = Promise.resolve();
  /** A record whose turn has not come. A newer record takes its place. */
  #waiting: { update: RecordUpdate } | undefined;
  /** Time up to which records have been told; behind now by the burst at most. */
  #pace = 0;
  /** The registry was told that the agent is silent: it did not acknowledge an opening and has sent nothing since. */
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

  /** Limits what a flood of records costs the registry to a few signatures a second. Of waiting records only the newest is sent. */
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

  /** The agent did not acknowledge an opening. `gone`: there is no socket. If the object lost it with its memory, no event closes it. */
  silent(gone: boolean): void {
    if (this.#silent) return;
    this.#silent = true;
    const { session } = this.#options;
    this.#send((registry) => (gone ? registry.closed(session) : registry.suspect(session)));
  }

  /** The agent spoke. A suspicion is no verdict: an agent that speaks again is served again. */
  heard(): void {
    if (!this.#silent) return;
    this.#silent = false;
    this.#send((registry) => registry.trust(this.#options.session));
  }

  /** The session's socket is gone. Later calls reach the registry after this one. */
  closed(): void {
    this.#silent = false;
    this.#waiting = undefined;
    this.#send((registry) => registry.closed(this.#options.session));
  }

  /** Not in turn with the other calls, and not retried: a state that is lost is told again a second later. */
  live(news: LiveState): void {
    this.#options.waitUntil(this.#registry.live(this.#options.session, news).catch(() => {}));
  }

  /** Only counted: nothing depends on it. */
  double(): void {
    this.#options.waitUntil(this.#registry.double().catch(() => {}));
  }

  /**
   * Whether another session answers. Asks the registry and not that session's object: its own agent must touch an object first, and any
   * name would make one.
   */
  probe(session: string): Promise<ProbeVerdict> {
    return this.#registry.probe(session).catch(() => 'unknown' as const);
  }
}

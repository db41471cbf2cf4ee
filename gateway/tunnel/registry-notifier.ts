import type { LiveState } from '../../shared/routing/load.ts';
import { CLOSE } from '../../shared/wire/close.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Env } from '../env.ts';
import type { ObjectStub } from '../object-context.ts';
import type { RegistryObject } from '../registry/object.ts';
import { REGISTRY_NAME } from '../registry-name.ts';
import { steadyNow } from '../steady-clock.ts';
import type { AgentSocket } from './socket.ts';

/** Records that one session may tell the registry: so many at once, then one each so many ms. */
const RECORD_BURST = 20;
const RECORD_EVERY_MS = 200;

/** The registry object may just be moving: tried so often, over some three seconds. */
const ATTEMPTS = 5;

type Registry = ObjectStub<RegistryObject>;

/** What a session says of itself, on its way. */
interface RecordUpdate {
  peer: AgentSocket;
  sequence: number;
  update: Uint8Array;
}

interface RegistryNotifierOptions {
  session: string;
  env: Pick<Env, 'REGISTRY'>;
  waitUntil(work: Promise<void>): void;
  /** The registry did not take its record, and it is closed. */
  refused(peer: AgentSocket): void;
  /** The registry did not answer for some seconds. */
  lost(): void;
}

/** Tells the registry what one tunnel sees. Calls go out one after the other: a "closed" must not overtake the "opened" before it. */
export class RegistryNotifier {
  readonly #options: RegistryNotifierOptions;
  #queue: Promise<void> = Promise.resolve();
  /** A record whose turn has not come: a newer one takes its place, however many come. */
  #waiting: { update: RecordUpdate } | undefined;
  /** Time up to which records have been told; behind now by the burst at most. */
  #pace = 0;
  /** An opening was not acknowledged and nothing came since: the registry has been told. */
  #silent = false;

  constructor(options: RegistryNotifierOptions) {
    this.#options = options;
  }

  get #registry(): Registry {
    return this.#options.env.REGISTRY.getByName(REGISTRY_NAME);
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

  /** A flood of ever new records costs the registry a few signatures a second; the newest of them is what is told. */
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
    peer.close(over ? CLOSE.over : CLOSE.protocol, over ? published.reason : `bad record: ${published.reason}`);
    refused(peer);
  }

  /** An opening was not acknowledged. `gone`: there is no socket; one that an object lost with its memory is never closed by an event. */
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

  /** Its socket is gone. What comes after this is said after it. */
  closed(): void {
    this.#silent = false;
    this.#waiting = undefined;
    this.#send((registry) => registry.closed(this.#options.session));
  }

  /** Beside the others: what is not told is told a second later. */
  live(news: LiveState): void {
    this.#options.waitUntil(this.#registry.live(this.#options.session, news).catch(() => {}));
  }

  /** Only counted: nothing depends on it. */
  double(): void {
    this.#options.waitUntil(this.#registry.double().catch(() => {}));
  }

  /** Does another session answer? Not asked of its object itself: an object is first touched by its own agent, and any name makes one. */
  probe(session: string): Promise<ProbeVerdict> {
    return this.#registry.probe(session).catch(() => 'unknown' as const);
  }
}

import type { Env } from '../env.ts';
import type { RegistryObject } from '../registry/object.ts';
import { REGISTRY_NAME } from '../registry-name.ts';
import type { AgentSocket } from './socket.ts';

/** Records that one session may tell the registry: so many at once, then one each so many ms. */
const RECORD_BURST = 20;
const RECORD_EVERY_MS = 200;

/** The registry object may just be moving: tried so often, over some three seconds. */
const ATTEMPTS = 5;

type Registry = DurableObjectStub<RegistryObject>;

/** What a session says of itself, on its way. */
export interface RecordWord {
  peer: AgentSocket;
  sequence: number;
  update: Uint8Array;
}

interface RegistryLineOptions {
  env: Pick<Env, 'REGISTRY'>;
  waitUntil(work: Promise<void>): void;
  tell(registry: Registry, word: RecordWord): Promise<void>;
  /** The registry did not answer for some seconds. */
  lost(): void;
}

/** What one tunnel tells the registry: one word after the other, because a "gone" must not overtake the "here" before it. */
export class RegistryLine {
  readonly #options: RegistryLineOptions;
  #queue: Promise<void> = Promise.resolve();
  /** A record whose turn has not come: a newer one takes its place, however many come. */
  #waiting: { word: RecordWord } | undefined;
  /** Time up to which records have been told; behind now by the burst at most. */
  #pace = 0;

  constructor(options: RegistryLineOptions) {
    this.#options = options;
  }

  say(word: (registry: Registry) => Promise<void>): void {
    const { env, lost, waitUntil } = this.#options;
    this.#queue = this.#queue.then(async () => {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        try {
          return await word(env.REGISTRY.getByName(REGISTRY_NAME));
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
        }
      }
      lost();
    });
    waitUntil(this.#queue);
  }

  record(word: RecordWord): void {
    if (this.#waiting !== undefined) {
      this.#waiting.word = word;
      return;
    }
    const waiting = { word };
    this.#waiting = waiting;
    this.say(async (registry) => {
      await this.#paced();
      if (this.#waiting === waiting) this.#waiting = undefined;
      await this.#options.tell(registry, waiting.word);
    });
  }

  /** What comes after this is said after it. */
  cut(): void {
    this.#waiting = undefined;
  }

  /** A flood of ever new records costs the registry a few signatures a second; the newest of them is what is told. */
  async #paced(): Promise<void> {
    const now = Date.now();
    this.#pace = Math.max(this.#pace + RECORD_EVERY_MS, now - RECORD_BURST * RECORD_EVERY_MS);
    if (this.#pace > now) await new Promise((resolve) => setTimeout(resolve, this.#pace - now));
  }
}

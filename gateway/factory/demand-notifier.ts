import type { Env } from '../env.ts';
import type { Clock } from '../platform/object-context.ts';
import { FACTORY_OBJECT_NAME } from './name.ts';

/** What is wanted is said again so often while it lasts. */
const TELL_MS = 4_000;
/** No factory has the model: one that comes is found out so late. */
const UNHEARD_MS = 30_000;
/** Signs that come in one breath are one. */
const SOON_MS = 50;

type Factory = ReturnType<Env['FACTORY']['getByName']>;

export interface DemandNotifierOptions {
  env: Pick<Env, 'FACTORY'>;
  clock: Pick<Clock, 'now' | 'after'>;
  /** Says what is wanted now. Resolves with whether a factory has the model. */
  tell(factory: Factory): Promise<boolean>;
  /** Something is wanted: it is said again until nothing is. */
  lasts(): boolean;
}

/** Tells the object of all factories what an object of one model knows, at once where it is news and rarely where no factory listens. */
export class DemandNotifier {
  readonly #options: DemandNotifierOptions;
  #stop: (() => void) | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  /** Not before it, since no factory listened. */
  #quietUntil = 0;
  #telling = false;
  /** While it was being told: what was said is out of date already. */
  #changed = false;

  constructor(options: DemandNotifierOptions) {
    this.#options = options;
  }

  /** What is wanted has changed. */
  news(): void {
    this.#changed = this.#telling;
    this.#schedule(SOON_MS);
  }

  #schedule(ms: number): void {
    const { clock } = this.#options;
    const at = Math.max(clock.now() + ms, this.#quietUntil);
    if (at >= this.#dueAt || this.#telling) return;
    this.#stop?.();
    this.#dueAt = at;
    this.#stop = clock.after(at - clock.now(), () => void this.#tell());
  }

  async #tell(): Promise<void> {
    const { env, clock, tell, lasts } = this.#options;
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#telling = true;
    try {
      const isHeard = await tell(env.FACTORY.getByName(FACTORY_OBJECT_NAME));
      this.#quietUntil = isHeard ? 0 : clock.now() + UNHEARD_MS;
    } catch {
      // the object moves: it is told again
    }
    this.#telling = false;
    if (this.#changed) this.#schedule(SOON_MS);
    else if (lasts()) this.#schedule(TELL_MS);
    this.#changed = false;
  }
}

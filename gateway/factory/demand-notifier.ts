import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Env } from '../env.ts';
import type { Clock } from '../platform/object-context.ts';
import { FACTORY_OBJECT_NAME } from './factory-object-name.ts';

/** Interval at which demand is reported again while it lasts. */
const REPORT_MS = 4_000;
/**
 * Delay of the next report if no autoscaler has the model. If an autoscaler adds the model meanwhile, it gets the
 * demand after at most this time.
 */
const NO_FACTORY_PAUSE_MS = 30_000;
/** Changes within this time are reported together. */
const SOON_MS = 50;

type Factory = ReturnType<Env['FACTORY']['getByName']>;

interface DemandNotifierOptions {
  env: Pick<Env, 'FACTORY'>;
  clock: Pick<Clock, 'now' | 'after'>;
  /** Reports the current demand. Resolves to whether an autoscaler has the model. */
  tell(factory: Factory): Promise<boolean>;
  /** True while there is demand, which is then reported repeatedly. */
  lasts(): boolean;
}

/**
 * Reports the demand for one model to the factory object: soon after a change, and rarely if no autoscaler has the
 * model.
 */
export class DemandNotifier {
  readonly #options: DemandNotifierOptions;
  #stop: (() => void) | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  /** No report is sent before this time, because no autoscaler had the model; milliseconds. */
  #quietUntil = 0;
  #reporting = false;
  /** True if the demand changed while it was being reported, so that the report is already outdated. */
  #changed = false;

  constructor(options: DemandNotifierOptions) {
    this.#options = options;
  }

  /** Call this when the demand has changed. */
  news(): void {
    this.#changed = this.#reporting;
    this.#schedule(SOON_MS);
  }

  #schedule(ms: number): void {
    const { clock } = this.#options;
    const at = Math.max(clock.now() + ms, this.#quietUntil);
    if (at >= this.#dueAt || this.#reporting) return;
    this.#stop?.();
    this.#dueAt = at;
    this.#stop = clock.after(at - clock.now(), () => neverRejects(this.#report()));
  }

  async #report(): Promise<void> {
    const { env, clock, tell: report, lasts } = this.#options;
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#reporting = true;
    try {
      const isHeard = await report(env.FACTORY.getByName(FACTORY_OBJECT_NAME));
      this.#quietUntil = isHeard ? 0 : clock.now() + NO_FACTORY_PAUSE_MS;
    } catch {
      // The object did not answer, for example because it restarts. The demand is reported again later.
    }
    this.#reporting = false;
    if (this.#changed) this.#schedule(SOON_MS);
    else if (lasts()) this.#schedule(REPORT_MS);
    this.#changed = false;
  }
}

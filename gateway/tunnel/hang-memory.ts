import type { HangSuspicion } from '../../shared/routing/hang-suspicion.ts';
import type { BreakerState } from '../../shared/routing/load.ts';
import type { KeyValue } from '../object-context.ts';

const KEY = 'hang';

/**
 * That an engine is taken to hang, over the hibernation of its tunnel's object: nothing is sent there, so the object soon sleeps, and one that
 * had forgotten would let requests hang again. Written only where it changes.
 */
export class HangMemory {
  readonly #kv: KeyValue;

  constructor(kv: KeyValue) {
    this.#kv = kv;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#kv.get<HangSuspicion>(KEY);
  }

  /** Returns what isolates are to be told. `since` is now: of two words the newer one counts there. */
  keep(suspicion: HangSuspicion | undefined, now: number): BreakerState {
    if (suspicion === undefined) {
      this.#kv.delete(KEY);
      return { state: 'closed', since: now, until: now };
    }
    this.#kv.put(KEY, suspicion);
    return { state: 'open', since: now, until: suspicion.until, hangs: true };
  }
}

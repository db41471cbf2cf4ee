import { breakerStateFor, type HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import type { BreakerState } from '../../shared/routing/load.ts';
import type { KeyValue } from '../platform/object-context.ts';

const KEY = 'hang';

/**
 * Remembers over hibernation that an engine is taken to hang. No request goes to such an engine, so its tunnel's object soon sleeps. An
 * object that had forgotten would let requests hang again. Written only on a change.
 */
export class HangMemory {
  readonly #kv: KeyValue;

  constructor(kv: KeyValue) {
    this.#kv = kv;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#kv.get<HangSuspicion>(KEY);
  }

  /** Returns what isolates are to be told. @param now the watch's clock, @param wall milliseconds since the epoch, for other isolates */
  keep(suspicion: HangSuspicion | undefined, now: number, wall: number): BreakerState {
    if (suspicion === undefined) this.#kv.delete(KEY);
    else this.#kv.put(KEY, suspicion);
    return breakerStateFor(suspicion && suspicion.until - now, wall);
  }
}

import { breakerFor, type HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
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

  /** Returns what isolates are to be told. @param now of the watch's clock, @param wall milliseconds since the epoch, for the other isolates */
  keep(suspicion: HangSuspicion | undefined, now: number, wall: number): BreakerState {
    if (suspicion === undefined) this.#kv.delete(KEY);
    else this.#kv.put(KEY, suspicion);
    return breakerFor(suspicion && suspicion.until - now, wall);
  }
}

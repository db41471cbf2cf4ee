import { breakerStateFor, type HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import type { BreakerState } from '../../shared/routing/node-load.ts';
import type { KeyValue } from '../platform/object-context.ts';

const KEY = 'hang';

/**
 * Remembers across hibernation that an engine is suspected to hang. Such an engine gets no requests, so its tunnel
 * object soon sleeps; if the object forgot, requests would hang again. Written only on a change.
 */
export class HangMemory {
  readonly #kv: KeyValue;

  constructor(kv: KeyValue) {
    this.#kv = kv;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#kv.get<HangSuspicion>(KEY);
  }

  /**
   * Returns the state to announce to isolates. @param now the watch's clock, @param wall milliseconds since the epoch,
   * for other isolates
   */
  keep(suspicion: HangSuspicion | undefined, now: number, wall: number): BreakerState {
    if (suspicion === undefined) this.#kv.delete(KEY);
    else this.#kv.put(KEY, suspicion);
    return breakerStateFor(suspicion && suspicion.until - now, wall);
  }
}

import { breakerStateFor, type HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import type { BreakerState } from '../../shared/routing/node-load.ts';
import type { KeyValue } from '../platform/object-context.ts';

const KEY = 'hang';

/**
 * Stores across hibernation that an engine is suspected to hang. Such an engine gets no requests, so its tunnel object
 * soon sleeps; if the object forgot the suspicion, requests would hang again. Written only on a change.
 */
export class StoredHangState {
  readonly #kv: KeyValue;

  constructor(kv: KeyValue) {
    this.#kv = kv;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#kv.get<HangSuspicion>(KEY);
  }

  /**
   * Stores a suspicion and returns the breaker's state for other isolates.
   * @param now time of the hang detector's clock
   * @param wall milliseconds since the epoch
   */
  keep(suspicion: HangSuspicion | undefined, now: number, wall: number): BreakerState {
    if (suspicion === undefined) this.#kv.delete(KEY);
    else this.#kv.put(KEY, suspicion);
    return breakerStateFor(suspicion && suspicion.until - now, wall);
  }
}

/** Number of past slots. Their mean is the history H of the paper's state. */
const HISTORY_SLOTS = 5;
/** Number of features of an entry, which is a pair of origin and region. */
export const FEATURES = 16;

/** Requests of each origin in the last slots. */
export class ArrivalHistory {
  readonly #slots: number[][] = [];

  observe(arrived: readonly number[]): void {
    this.#slots.push([...arrived]);
    if (this.#slots.length > HISTORY_SLOTS) this.#slots.shift();
  }

  mean(origin: number): number {
    return this.#slots.reduce((sum, line) => sum + (line[origin] ?? 0), 0) / Math.max(1, this.#slots.length);
  }
}

/** The state of the regions when a slot begins. */
interface SlotState {
  /** Expected requests that start in the region: in this slot, and in the one after it. */
  expected: readonly number[];
  next: readonly number[];
  /** Requests that started there in the last slot. */
  came: readonly number[];
  history: ArrivalHistory;
  /** Seconds of work of a request. */
  workS: number;
  /** Seconds of work that the region can do in the slot; at least 1. */
  roomS: readonly number[];
  /** Seconds of work that wait there, and the busy share of its servers in the last slot. */
  backlogS: readonly number[];
  use: readonly number[];
  /** USD per kWh. */
  prices: readonly number[];
  /** One way, seconds; infinite: out of reach. */
  latencyS(from: number, to: number): number;
  /** Shares by origin and region: what the quadratic program plans, and those of the last slot. */
  planned: Float64Array;
  previous: Float64Array;
}

/**
 * The state of the paper's decision process, entry by entry, so that a small network serves any number of regions:
 * use U, backlog Q, latencies L, prices, history H, forecast F and the last shares A, beside the share that the QP plans.
 */
export function entryStates(slot: SlotState): Float64Array {
  const { expected, next, came, history, workS, roomS, backlogS, use, prices, planned, previous } = slot;
  const regions = expected.length;
  const total = (line: readonly number[]) => line.reduce((sum, count) => sum + count, 0);
  const work = expected.map((count) => count * workS);
  const [meanTasks, meanRoom, meanPrice] = [expected, roomS, prices].map((all) => Math.max(1e-6, total(all) / regions));
  const load = roomS.map(
    (room, to) => work.reduce((sum, own, i) => sum + own * (planned[i * regions + to] ?? 0), 0) / room,
  );
  const trend = next.map((count, r) => Math.log((count + 1) / (history.mean(r) + 1)));
  const surprise = came.map((count, r) => (count - history.mean(r)) / Math.sqrt(history.mean(r) + 1));
  const all = total(work) / total(roomS);
  const state = new Float64Array(regions ** 2 * FEATURES);
  for (let i = 0; i < regions; i++)
    for (let j = 0; j < regions; j++) {
      const entry = i * regions + j;
      const share = planned[entry] ?? 0;
      const room = roomS[j] ?? 1;
      const values = [
        10 * slot.latencyS(i, j),
        i === j ? 1 : 0,
        use[j] ?? 0,
        (4 * (backlogS[j] ?? 0)) / room,
        Math.log(room / (meanRoom ?? 1)),
        (prices[j] ?? 0) / (meanPrice ?? 1) - 1,
        Math.log((expected[i] ?? 0) / (meanTasks ?? 1) + 0.01),
        trend[i] ?? 0,
        trend[j] ?? 0,
        (load[j] ?? 0) - 1,
        share,
        Math.log(share + 0.01) / 4,
        (previous[entry] ?? 0) - share,
        (work[j] ?? 0) / room - 1,
        all - 0.5,
        (surprise[j] ?? 0) / 3,
      ];
      for (const [f, value] of values.entries()) state[entry * FEATURES + f] = Math.min(3, Math.max(-3, value));
    }
  return state;
}

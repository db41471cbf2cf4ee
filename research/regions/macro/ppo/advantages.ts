import { byOrigin, rowState } from './features.ts';
import type { Network } from './network.ts';
import { logDensities } from './residual-policy.ts';
import type { Rollout } from './rollout.ts';

const [DISCOUNT, LAMBDA_GAE, NORM] = [0.9, 0.9, 1];
/** Weight of all origins' costs beside those of the own origin: a row's tasks also delay those of others. */
const SHARED = 1;

/** The action for one pair of origin and region. */
export interface Entry {
  state: Float64Array;
  entry: number;
  x: number;
  logDensity: number;
  /** Of its row and slot; the mean over all entries is 0, the deviation 1. */
  advantage: number;
}

/** How much less each origin's tasks cost than under the teacher with the same arrivals, `[slot][origin]`, seconds. */
function rewardsOf(played: Rollout, teacher: Rollout): number[][] {
  return played.costs.map((cost, slot) => {
    const other = teacher.costs[slot] ?? cost;
    const shared = SHARED * (other.allS - cost.allS);
    return Array.from(cost.responseS, (seconds, origin) => {
      const both = (cost.tasks[origin] ?? 0) > 0 && (other.tasks[origin] ?? 0) > 0;
      return both ? (other.responseS[origin] ?? 0) - seconds + shared : shared;
    });
  });
}

/**
 * The entries of an episode with generalized advantage estimates (Schulman et al. 2016) of their rows. The critic
 * values a row's state, and learns from the estimates.
 */
export function entriesOf(played: Rollout, teacher: Rollout, critic: Network): Entry[] {
  const { decisions, regions } = played;
  const rewards = rewardsOf(played, teacher);
  const advantages = decisions.map(() => new Float64Array(regions));
  for (let row = 0; row < regions; row++) {
    const states = decisions.map(({ state, planned }) => rowState(state, byOrigin(planned, regions), row, regions));
    const values = states.map((state) => critic.forward(state)[0] ?? 0);
    let [next, carried] = [0, 0];
    for (let slot = decisions.length - 1; slot >= 0; slot--) {
      const value = values[slot] ?? 0;
      carried = (rewards[slot]?.[row] ?? 0) + DISCOUNT * next - value + DISCOUNT * LAMBDA_GAE * carried;
      const own = advantages[slot];
      if (own !== undefined) own[row] = carried;
      next = value;
    }
    for (const [slot, state] of states.entries()) {
      const error = (critic.forward(state)[0] ?? 0) - (advantages[slot]?.[row] ?? 0) - (values[slot] ?? 0);
      critic.backward(Float64Array.of((2 * error) / states.length / regions));
    }
  }
  critic.step(NORM);
  const all = advantages.flatMap((line) => [...line]);
  const mean = all.reduce((sum, one) => sum + one, 0) / all.length;
  const deviation = Math.sqrt(all.reduce((sum, one) => sum + (one - mean) ** 2, 0) / all.length);
  return decisions.flatMap(({ state, shapes, x }, slot) =>
    Array.from(logDensities(shapes, x), (logDensity, entry): Entry => {
      const advantage = ((advantages[slot]?.[Math.floor(entry / regions)] ?? 0) - mean) / (deviation + 1e-8);
      return { state, entry, x: x[entry] ?? 0.5, logDensity, advantage };
    }),
  );
}

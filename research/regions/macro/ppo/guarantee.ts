import type { World } from '../../world/world.ts';
import { distance2, FluidRegions, stateOf, type TraceSlot } from './environment.ts';
import { type BetaPolicy, normaliseRows } from './policy.ts';

/** Weights of (1): a unit of switching and a US dollar, in seconds of response. */
const [W_SWITCH, W_POWER] = [1, 100];
/** Slots at which the constants are estimated. */
const SAMPLES = 24;
/** Distance by which shares move towards the probed region. */
const PROBE = 0.05;

/** The paper's gain condition w_s·S_0·(1 − 1/η) > (L_T + w_p·L_P)·ε with its estimated constants. */
export interface Guarantee {
  episode: number;
  s0: number;
  sRl: number;
  /** S_0 / S_RL. */
  eta: number;
  /** Largest |ΔT| / ‖ΔA‖ and |ΔP| / ‖ΔA‖ that were found: seconds, USD. */
  lipschitzResponse: number;
  lipschitzPower: number;
  /** Mean ‖A − A*‖. */
  epsilon: number;
  holds: boolean;
}

/**
 * Follows the policy's mean through a trace. Lipschitz constants are the steepest finite differences: lower bounds of
 * the true ones.
 */
export function guarantee(
  world: World,
  policy: BetaPolicy,
  slots: readonly TraceSlot[],
  s0: number,
  episode: number,
): Guarantee {
  const fluid = new FluidRegions(world);
  const { regions } = policy;
  let previous = new Float64Array(regions ** 2).fill(1 / regions);
  let [change, off, lipschitzResponse, lipschitzPower] = [0, 0, 0, 0];
  const every = Math.max(1, Math.floor(slots.length / SAMPLES));
  for (const [k, slot] of slots.entries()) {
    const state = stateOf(fluid.use, fluid.backlogS, fluid.rooms, slot.demand, previous);
    const shares = normaliseRows(policy.mean(policy.shapes(state)), regions);
    if (k > 0) change += distance2(shares, previous);
    off += Math.sqrt(distance2(shares, slot.target));
    if (k % every === 0) {
      const at = fluid.costs(shares, slot);
      for (let to = 0; to < regions; to++) {
        const moved = shares.map((share, e) => (1 - PROBE) * share + (e % regions === to ? PROBE : 0));
        const by = Math.sqrt(distance2(moved, shares));
        const there = fluid.costs(moved, slot);
        lipschitzResponse = Math.max(lipschitzResponse, Math.abs(there.response - at.response) / by);
        lipschitzPower = Math.max(lipschitzPower, Math.abs(there.power - at.power) / by);
      }
    }
    fluid.step(shares, slot);
    previous = new Float64Array(shares);
  }
  const sRl = change / Math.max(1, slots.length - 1);
  const epsilon = off / Math.max(1, slots.length);
  const eta = s0 / Math.max(sRl, 1e-12);
  const holds = W_SWITCH * s0 * (1 - 1 / eta) > (lipschitzResponse + W_POWER * lipschitzPower) * epsilon;
  return { episode, s0, sRl, eta, lipschitzResponse, lipschitzPower, epsilon, holds };
}

import type { RunResult } from '../../simulator/recorder.ts';
import { SLOT_S } from '../../simulator/workload.ts';
import type { World } from '../../world/world.ts';
import { capacities } from '../paper-transport.ts';
import { DEFAULT_WEIGHTS, type MacroInput } from '../problem.ts';
import { byOrigin } from './features.ts';
import { type Decision, residualPlanner } from './planner.ts';
import { distance2, type ResidualPolicy } from './residual-policy.ts';

/** Weights of (1): a unit of switching and a US dollar, in seconds of response. */
const [W_SWITCH, W_POWER] = [1, 100];
/** Slots at which the constants are estimated. */
const SAMPLES = 24;
/** Distance by which shares move towards the probed region. */
const PROBE = 0.05;
/** Watts of a busy A100 equivalent, only for the price of energy. */
const WATTS = 340;
const JOULES_PER_KWH = 3.6e6;

/** The paper's gain condition w_s·S_0·(1 − 1/η) > (L_T + w_p·L_P)·ε with its estimated constants. */
export interface Guarantee {
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

/** Collects what the constants need while the policy's mean action plans a run. */
export class GuaranteeProbe {
  readonly #policy: ResidualPolicy;
  readonly #decisions: { decision: Decision; input: MacroInput }[] = [];

  constructor(policy: ResidualPolicy) {
    this.#policy = policy;
  }

  planner() {
    return residualPlanner(this.#policy, {
      decided: (decision, input) => void this.#decisions.push({ decision, input }),
    });
  }

  /**
   * After the run. Lipschitz constants are the steepest finite differences: lower bounds of the true ones.
   * `s0`: ‖A_k − A_{k−1}‖² of the reactive baselines.
   */
  result({ shareChange }: Pick<RunResult, 'shareChange'>, s0: number): Guarantee {
    let [off, lipschitzResponse, lipschitzPower] = [0, 0, 0];
    const every = Math.max(1, Math.floor(this.#decisions.length / SAMPLES));
    for (const [k, { decision, input }] of this.#decisions.entries()) {
      const regions = input.demand.length;
      const shares = byOrigin(decision.shares, regions);
      off += Math.sqrt(distance2(shares, byOrigin(decision.planned, regions)));
      if (k % every !== 0) continue;
      const at = fluidCosts(input, shares);
      for (let to = 0; to < regions; to++) {
        const moved = shares.map((share, e) => (1 - PROBE) * share + (e % regions === to ? PROBE : 0));
        const by = Math.max(1e-12, Math.sqrt(distance2(moved, shares)));
        const there = fluidCosts(input, moved);
        lipschitzResponse = Math.max(lipschitzResponse, Math.abs(there.response - at.response) / by);
        lipschitzPower = Math.max(lipschitzPower, Math.abs(there.power - at.power) / by);
      }
    }
    const epsilon = off / Math.max(1, this.#decisions.length);
    const eta = s0 / Math.max(shareChange, 1e-12);
    const holds = W_SWITCH * s0 * (1 - 1 / eta) > (lipschitzResponse + W_POWER * lipschitzPower) * epsilon;
    return { s0, sRl: shareChange, eta, lipschitzResponse, lipschitzPower, epsilon, holds };
  }
}

/** Mean response, seconds, and electricity, USD, of a slot with these shares, if each region is a fluid queue. */
function fluidCosts(
  { world, servers, demand, prices, backlogS }: MacroInput,
  shares: Float64Array,
): { response: number; power: number } {
  const rooms = capacities({ world, servers }).map((count) => Math.max(1, count * SLOT_S));
  const workS = DEFAULT_WEIGHTS.meanWorkS;
  const tasks = demand.map((line) => line.reduce((sum, count) => sum + count, 0));
  let [response, power, total] = [0, 0, 0];
  for (const [to, room] of rooms.entries()) {
    const parts = tasks.map((count, from) => count * (shares[from * rooms.length + to] ?? 0));
    const work = parts.reduce((sum, count) => sum + count * workS, backlogS[to] ?? 0);
    const load = Math.min(0.95, work / room);
    const delay = (workS * load) / (1 - load) + Math.max(0, work - room) / 2;
    for (const [from, count] of parts.entries()) {
      total += count;
      response += count * (workS + delay + 2 * latency(world, from, to));
      power += (count * workS * WATTS * (prices[to] ?? 0)) / JOULES_PER_KWH;
    }
  }
  return { response: response / Math.max(1e-9, total), power };
}

const latency = ({ topology }: World, from: number, to: number) => topology.latencyS[from]?.[to] ?? 0;

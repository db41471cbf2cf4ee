import { type Random, seededRandom } from '../../../../scheduler/simulator/random.ts';
import type { World } from '../../world/world.ts';
import { distance2, FluidRegions, stateOf, type TraceSlot, trace } from './environment.ts';
import { type Guarantee, guarantee } from './guarantee.ts';
import { Network } from './network.ts';
import { BetaPolicy, normaliseRows, stateSize } from './policy.ts';

export interface TrainOptions {
  seed: number;
  episodes: number;
  /** Slots of an episode. */
  slots: number;
  /** Seeds of the training arrivals. */
  traces: readonly number[];
  /** ‖A_k − A_{k−1}‖² of the reactive baselines, measured in the simulator: S_0. */
  reactive: readonly number[];
  /** Called every ten episodes. */
  told?: (line: string) => void;
}

export interface Trained {
  policy: BetaPolicy;
  /** Mean reward, distance to the teacher and change of shares, every ten episodes. */
  curve: { episode: number; reward: number; distance: number; change: number }[];
  guarantees: Guarantee[];
}

/** Weights of (3). */
const REWARD = { teacher: 1, change: 0.5, queue: 5 };
const [CLIP, DISCOUNT, LAMBDA_GAE, EPOCHS, BATCH] = [0.2, 0.95, 0.9, 3, 60];
const NORM = 1;
/**
 * (5): `epsilon` is the allowed distance of the mean action from the teacher, ‖A − A*‖ per row; `eta` the least
 * S_0/S_RL. λ_a rises by κ while one of them is violated, and falls otherwise.
 */
const CONSTRAINT = { epsilon: 0.1, eta: 1.5, kappa: 0.05, least: 0.05, most: 20 };
/**
 * There are at least 144 entries: their log ratios are averaged, because otherwise no step would stay within the clip.
 */
const meanRatio = (now: number, then: number, entries: number) => Math.exp((now - then) / Math.sqrt(entries));

interface Step {
  state: Float64Array;
  raw: Float64Array;
  logProbability: number;
  target: Float64Array;
  reward: number;
  value: number;
  advantage: number;
  returned: number;
  change: number;
  distance: number;
}

/** PPO with a Beta policy, optimal transport as teacher and the paper's two constraint terms. Deterministic by seed. */
export async function train(world: World, options: TrainOptions): Promise<Trained> {
  const random = seededRandom(options.seed);
  const regions = world.topology.regions.length;
  const policy = new BetaPolicy(regions, random);
  const critic = new Network([stateSize(regions), 32, 1], random, 1e-3);
  const traces: TraceSlot[][] = [];
  for (const seed of options.traces) traces.push(await trace(world, seed, options.slots));
  const s0 = options.reactive.reduce((sum, one) => sum + one, 0) / Math.max(1, options.reactive.length);
  const found: Trained = { policy, curve: [], guarantees: [] };
  let pull = 1;
  for (let episode = 1; episode <= options.episodes; episode++) {
    const slots = traces[episode % traces.length] ?? [];
    const steps = rollout(world, policy, critic, slots, random);
    const means = (of: (step: Step) => number) => steps.reduce((sum, step) => sum + of(step), 0) / steps.length;
    const change = means((step) => step.change);
    const violated =
      means((step) => step.distance) > CONSTRAINT.epsilon * Math.sqrt(regions) || s0 / change < CONSTRAINT.eta;
    pull = Math.min(CONSTRAINT.most, Math.max(CONSTRAINT.least, pull * (1 + (violated ? 1 : -1) * CONSTRAINT.kappa)));
    for (let epoch = 0; epoch < EPOCHS; epoch++) learn(policy, critic, shuffled(steps, random), pull);
    if (episode % 10 !== 0) continue;
    const reward = means((step) => step.reward);
    found.curve.push({ episode, reward, distance: means((step) => step.distance), change });
    const checked = guarantee(world, policy, slots, s0, episode);
    found.guarantees.push(checked);
    options.told?.(
      `episode ${episode}: reward ${reward.toFixed(3)}, pull ${pull.toFixed(2)}; S_0 ${s0.toFixed(3)}, S_RL ${checked.sRl.toFixed(3)}, η ${checked.eta.toFixed(2)}, L_T ${checked.lipschitzResponse.toFixed(2)}, L_P ${checked.lipschitzPower.toFixed(4)}, ε ${checked.epsilon.toFixed(3)}: the gain condition ${checked.holds ? 'holds' : 'does not hold'}`,
    );
  }
  return found;
}

function rollout(
  world: World,
  policy: BetaPolicy,
  critic: Network,
  slots: readonly TraceSlot[],
  random: Random,
): Step[] {
  const fluid = new FluidRegions(world);
  const { regions } = policy;
  let previous = new Float64Array(regions ** 2).fill(1 / regions);
  const steps = slots.map((slot): Step => {
    const state = stateOf(fluid.use, fluid.backlogS, fluid.rooms, slot.demand, previous);
    const shapes = policy.shapes(state);
    const raw = policy.sample(shapes, random);
    const shares = normaliseRows(raw, regions);
    const mean = normaliseRows(policy.mean(shapes), regions);
    fluid.step(shares, slot);
    const change = distance2(shares, previous);
    previous = new Float64Array(shares);
    return {
      state,
      raw,
      logProbability: policy.logProbability(shapes, raw),
      target: slot.target,
      reward: -REWARD.teacher * distance2(shares, slot.target) - REWARD.change * change - REWARD.queue * fluid.queue,
      value: critic.forward(state)[0] ?? 0,
      advantage: 0,
      returned: 0,
      change,
      distance: Math.sqrt(distance2(mean, slot.target)),
    };
  });
  advantages(steps);
  return steps;
}

/** Generalized advantage estimation (Schulman et al. 2016), then scaled to mean 0 and deviation 1. */
function advantages(steps: Step[]): void {
  let [next, carried] = [0, 0];
  for (const step of steps.toReversed()) {
    carried = step.reward + DISCOUNT * next - step.value + DISCOUNT * LAMBDA_GAE * carried;
    step.advantage = carried;
    step.returned = carried + step.value;
    next = step.value;
  }
  const mean = steps.reduce((sum, { advantage }) => sum + advantage, 0) / steps.length;
  const deviation = Math.sqrt(steps.reduce((sum, { advantage }) => sum + (advantage - mean) ** 2, 0) / steps.length);
  for (const step of steps) step.advantage = (step.advantage - mean) / (deviation + 1e-8);
}

function learn(policy: BetaPolicy, critic: Network, steps: readonly Step[], pull: number): void {
  const entries = policy.regions ** 2;
  for (let from = 0; from < steps.length; from += BATCH) {
    const batch = steps.slice(from, from + BATCH);
    for (const step of batch) {
      const shapes = policy.shapes(step.state);
      const ratio = meanRatio(policy.logProbability(shapes, step.raw), step.logProbability, entries);
      const clipped = step.advantage > 0 ? ratio > 1 + CLIP : ratio < 1 - CLIP;
      const weight = clipped ? 0 : (-step.advantage * ratio) / Math.sqrt(entries) / batch.length;
      const off = Math.sqrt(distance2(normaliseRows(policy.mean(shapes), policy.regions), step.target));
      // d/dA of max(0, d − ε)² is 2(d − ε)·∇d: the pull on the squared distance, weakened near the teacher.
      const beyond = Math.max(0, off - CONSTRAINT.epsilon * Math.sqrt(policy.regions)) / Math.max(off, 1e-9);
      policy.addGradient(shapes, step.raw, weight, (pull * beyond) / batch.length, step.target);
      const value = critic.forward(step.state)[0] ?? 0;
      critic.backward(Float64Array.of((2 * (value - step.returned)) / batch.length));
    }
    policy.network.step(NORM);
    critic.step(NORM);
  }
}

function shuffled<T>(values: readonly T[], random: Random): T[] {
  return values
    .map((value) => ({ value, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

import { FEATURES } from '../../../../scheduler/regions/learned/entry-state.ts';
import { type Random, seededRandom } from '../../../../scheduler/simulator/random.ts';
import type { World } from '../../world/world.ts';
import { objectiveS } from '../objective.ts';
import { type Entry, entriesOf } from './advantages.ts';
import { logDensity } from './beta.ts';
import { adapt, firstPulls, type Measured, measure, type Pulls, pullBack } from './constraints.ts';
import { Network } from './network.ts';
import { ResidualPolicy } from './residual-policy.ts';
import { type Rollout, rollOut } from './rollout.ts';

export interface TrainOptions {
  seed: number;
  /** Iterations: an episode in each of two worlds, then three epochs of learning from them. */
  iterations: number;
  /** Slots of an episode. */
  slots: number;
  /** Seeds of the training arrivals, and of those that choose among the policies of the curve. */
  traces: readonly number[];
  validation: readonly number[];
  /** Iterations between two points of the curve. */
  checkEvery: number;
  /** ‖A_k − A_{k−1}‖² of the reactive baselines in each world, measured in the simulator: S_0. */
  reactive: readonly number[];
  /** Called at each point of the curve. */
  told?: (line: string) => void;
}

export interface CurvePoint extends Measured {
  iteration: number;
  /** Objective (1) of the mean action relative to the QP's, percent: mean over worlds and validation seeds. */
  objective: number;
}

export interface Trained {
  /** The policy of the curve's best point; the QP's plan if no point is better than it. */
  policy: ResidualPolicy;
  curve: CurvePoint[];
}

const [CLIP, EPOCHS, BATCH, NORM] = [0.2, 3, 1_024, 1];
/** Worlds of one iteration, in turn: so that an iteration stays short. */
const WORLDS_AT_ONCE = 2;

/** PPO in the event simulator, from the QP's behavior. Deterministic by seed. */
export async function train(worlds: readonly World[], options: TrainOptions): Promise<Trained> {
  const { slots, traces } = options;
  const random = seededRandom(options.seed);
  const policy = new ResidualPolicy(random);
  const critic = new Network([FEATURES, 16, 1], random, 1e-3);
  const teacher = teacherRuns(worlds, slots);
  const pulls = firstPulls();
  const curve: CurvePoint[] = [];
  let best = { objective: 0, parameters: policy.network.parameters.slice() };
  for (let iteration = 1; iteration <= options.iterations; iteration++) {
    const played: Rollout[] = [];
    const entries: Entry[] = [];
    const turn = Array.from(
      { length: Math.min(WORLDS_AT_ONCE, worlds.length) },
      (_, n) => n + iteration * WORLDS_AT_ONCE,
    );
    for (const at of turn.map((one) => one % worlds.length)) {
      const world = worlds[at];
      if (world === undefined) continue;
      const seed = traces[iteration % traces.length] ?? 1;
      const rollout = await rollOut({ world, seed, slots, policy, random });
      played.push(rollout);
      entries.push(...entriesOf(rollout, await teacher(at, seed), critic));
    }
    const measured = measure(
      played,
      turn.map((one) => options.reactive[one % worlds.length] ?? 0),
    );
    adapt(pulls, measured);
    for (let epoch = 0; epoch < EPOCHS; epoch++) learn(policy, entries, played, pulls, random);
    if (iteration % options.checkEvery !== 0) continue;
    const objective = await gain(worlds, policy, options, teacher);
    curve.push({ iteration, objective, ...measured });
    options.told?.(
      `iteration ${iteration}: objective (1) ${objective.toFixed(2)} % against the QP; distance ${measured.distance.toFixed(3)}, λ1 ${pulls.teacher.toFixed(4)}; change ${measured.change.toFixed(2)} of its bound, λ2 ${pulls.change.toFixed(4)}`,
    );
    if (objective < best.objective) best = { objective, parameters: policy.network.parameters.slice() };
  }
  policy.network.parameters.set(best.parameters);
  return { policy, curve };
}

type TeacherRuns = (world: number, seed: number) => Promise<Rollout>;

/** Runs of the untrained policy, which is the QP; each once. */
function teacherRuns(worlds: readonly World[], slots: number): TeacherRuns {
  const policy = new ResidualPolicy();
  const known = new Map<string, Promise<Rollout>>();
  return (at, seed) => {
    const world = worlds[at];
    if (world === undefined) throw new Error(`there is no world ${at}`);
    const run = known.get(`${at} ${seed}`) ?? rollOut({ world, seed, slots, policy });
    known.set(`${at} ${seed}`, run);
    return run;
  };
}

/** Objective (1) of the mean action relative to the QP's, percent. */
async function gain(
  worlds: readonly World[],
  policy: ResidualPolicy,
  { validation, slots }: TrainOptions,
  teacher: TeacherRuns,
): Promise<number> {
  let sum = 0;
  for (const [at, world] of worlds.entries())
    for (const seed of validation) {
      const { result } = await rollOut({ world, seed, slots, policy });
      sum += objectiveS(result) / objectiveS((await teacher(at, seed)).result) - 1;
    }
  return (100 * sum) / worlds.length / Math.max(1, validation.length);
}

/** One epoch: each entry once, and the constraints of each slot once. */
function learn(
  policy: ResidualPolicy,
  entries: readonly Entry[],
  played: readonly Rollout[],
  pulls: Pulls,
  random: Random,
): void {
  const order = shuffled(entries, random);
  const slots = shuffled(
    played.flatMap((rollout) => rollout.decisions.map((_, slot) => ({ rollout, slot }))),
    random,
  );
  const turns = Math.ceil(order.length / BATCH);
  for (let turn = 0; turn < turns; turn++) {
    const batch = order.slice(turn * BATCH, (turn + 1) * BATCH);
    for (const { state, entry, x, logDensity: before, advantage } of batch) {
      const [alpha, beta] = policy.shapes(state, entry);
      const ratio = Math.exp(logDensity(x, alpha, beta) - before);
      const clipped = advantage > 0 ? ratio > 1 + CLIP : ratio < 1 - CLIP;
      if (!clipped) policy.addGradient(alpha, beta, x, (-advantage * ratio) / batch.length, 0);
    }
    const [from, to] = [turn, turn + 1].map((at) => Math.floor((at * slots.length) / turns));
    for (const { rollout, slot } of slots.slice(from, to)) pullBack(policy, rollout, slot, pulls, turns / slots.length);
    policy.network.step(NORM);
  }
}

function shuffled<T>(values: readonly T[], random: Random): T[] {
  return values
    .map((value) => ({ value, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

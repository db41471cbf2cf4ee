import type { Calibration } from '../catalogue/calibration.ts';
import { headsOf, layerCount } from '../catalogue/model.ts';
import { deploymentProblem, kvCapacityTokens } from '../roofline/model-deployment.ts';
import { gpusOf, parallelismProblem } from '../roofline/parallelism.ts';
import { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import { Fluid, type Moments } from '../simulator/fluid-replica.ts';
import { type Random, seededRandom } from '../simulator/random.ts';
import { SimulatedEngine } from '../simulator/simulated-engine.ts';
import type { FittedKind, KindLengths } from '../workload/request-kinds.ts';
import type { Shape, ShapeRates, Site } from './types.ts';

/** Maximum number of pipeline stages of one replica: each further stage adds a hop and a bubble to every token. */
const STAGES_MAX = 4;
/** Requests of all kinds from which a mix is drawn. */
const MIXED_EXAMPLES = 400;
/** Load at which latencies are compared: a replica is well filled at this load, and its queue does not grow. */
const NOMINAL_LOAD = 0.7;

/** All shapes, smallest first, in which the model fits these GPUs with memory for two requests of its full context. */
function shapesOf({ model, gpu, gpus, gpusPerNode }: Site): Shape[] {
  const found: Shape[] = [];
  for (let tp = 1; tp <= Math.min(gpus, gpusPerNode); tp++) {
    for (let pp = 1; pp <= Math.min(STAGES_MAX, layerCount(model), Math.floor(gpus / tp)); pp++) {
      // Shapes that leave GPUs of a node unused are included, such as stages of 3 in a node of 8: the search decides
      // whether they are worthwhile.
      if (headsOf(model).heads % tp !== 0 || parallelismProblem(model, { tp, pp }) !== undefined) continue;
      const deployment = { model, gpu, tp, pp, weights: model.storage.weights, kv: model.storage.kv };
      if (deploymentProblem(deployment) !== undefined) continue;
      const room = kvCapacityTokens(deployment);
      if (room < 2 * Math.min(model.context || CONTEXT_TOKENS, CONTEXT_TOKENS)) continue;
      found.push({ tp, pp });
    }
  }
  return found.sort((a, b) => gpusOf(a) - gpusOf(b) || b.tp - a.tp);
}

/** A larger context of a model counts as this many tokens, because few requests fill it. */
const CONTEXT_TOKENS = 4096;

/** Rates of replicas, by shape. Step models and averages are computed once for each shape. */
export class RateTable {
  readonly site: Site;
  readonly kinds: readonly FittedKind[];
  readonly shapes: readonly ShapeRates[];
  readonly #steps = new Map<string, StepModel>();
  readonly #calibration: Calibration;
  readonly #limits: SimulatedEngineLimits;

  constructor(
    site: Site,
    kinds: readonly FittedKind[],
    calibration: Calibration,
    limits: SimulatedEngineLimits,
    shapes?: readonly Shape[],
  ) {
    this.site = site;
    this.kinds = kinds;
    this.#calibration = calibration;
    this.#limits = limits;
    this.shapes = (shapes ?? shapesOf(site)).map((shape) => this.#ratesOf(shape));
  }

  of(shape: Shape): ShapeRates {
    const known = this.shapes.find((one) => one.shape.tp === shape.tp && one.shape.pp === shape.pp);
    return known ?? this.#ratesOf(shape);
  }

  step(shape: Shape): StepModel {
    const key = `${shape.tp}.${shape.pp}`;
    const known = this.#steps.get(key);
    if (known !== undefined) return known;
    const { model, gpu } = this.site;
    const deployment = { model, gpu, ...shape, weights: model.storage.weights, kv: model.storage.kv };
    const step = new StepModel(deployment, this.#calibration, this.#limits);
    this.#steps.set(key, step);
    return step;
  }

  /** Averages of a replica that serves a mix of kinds, with `flow[kind]` requests/s. */
  fluid(shape: Shape, flow: readonly number[]): Fluid {
    return new Fluid(this.step(shape), this.#limits, mixed(this.kinds, flow));
  }

  #ratesOf(shape: Shape): ShapeRates {
    const alone: number[] = [];
    const latencyS: number[] = [];
    for (const { moments, examples } of this.kinds) {
      const fluid = new Fluid(this.step(shape), this.#limits, moments);
      const rate = fluid.batchMax < 1 ? 0 : this.#flatOut(shape, examples, fluid.batchMax);
      alone.push(rate);
      const nominal = Math.min(rate, fluid.saturated().rate) * NOMINAL_LOAD;
      latencyS.push(rate > 0 ? fluid.at(nominal).latencyS : Number.POSITIVE_INFINITY);
    }
    const together = this.#together(shape, alone);
    return { shape, rates: together < 1 ? alone.map((rate) => rate * together) : alone, alone, latencyS };
  }

  /**
   * Factor by which a pipeline is slower if it serves all kinds together. An assignment adds up the times of the
   * kinds (condition C3 of OServe §4.2), which is right within 6 % without stages. In a pipeline, the micro-batch with a
   * long prompt delays those behind it: up to a third of the throughput is lost.
   */
  #together(shape: Shape, alone: readonly number[]): number {
    if (shape.pp === 1 || this.kinds.length === 1 || alone.some((rate) => !(rate > 0))) return 1;
    const { batchMax } = new Fluid(
      this.step(shape),
      this.#limits,
      mixed(
        this.kinds,
        this.kinds.map(({ share }) => share),
      ),
    );
    // In random order: prompts at equal distances delay a pipeline more or less than those that arrive.
    const random = seededRandom(1);
    const counts = this.kinds.map(() => 0);
    const examples = Array.from({ length: MIXED_EXAMPLES }, () => {
      const kind = drawn(
        this.kinds.map(({ share }) => share),
        random,
      );
      counts[kind] = (counts[kind] ?? 0) + 1;
      const own = this.kinds[kind]?.examples ?? [];
      return own[Math.floor(random() * own.length)] ?? { input: 1, output: 1 };
    });
    const added = counts.reduce((sum, count, kind) => sum + count / MIXED_EXAMPLES / (alone[kind] ?? 1), 0);
    return Math.min(1, this.#flatOut(shape, examples, batchMax, MIXED_REQUESTS) * added);
  }

  /**
   * Requests/s of a replica that always has requests waiting. The rate is simulated, because averages do not show the
   * preemptions of a replica with full memory.
   */
  #flatOut(shape: Shape, examples: readonly KindLengths[], batch: number, least = ALONE_REQUESTS): number {
    const ends: number[] = [];
    const finished = (_request: number, first: number | undefined, end: number) => {
      if (first !== undefined) ends.push(end);
    };
    const replica = new SimulatedEngine(this.step(shape), this.#limits, finished);
    const count = Math.min(4000, Math.max(least, Math.ceil(batch * BATCHES)));
    for (let i = 0; i < count; i++) {
      const { input, output } = examples[(i * 7919) % examples.length] ?? { input: 1, output: 1 };
      replica.push(i, 0, input, output);
    }
    replica.run(Number.POSITIVE_INFINITY);
    ends.sort((a, b) => a - b);
    const [from, to] = [Math.floor(ends.length * EDGE), Math.floor(ends.length * (1 - EDGE)) - 1];
    const seconds = (ends[to] ?? 0) - (ends[from] ?? 0);
    return to > from && seconds > 0 ? (to - from) / seconds : 0;
  }
}

/**
 * To find a rate, a backlog of this many batches is simulated. The first and the last fifth, in which the batch fills
 * and empties, do not count.
 */
const BATCHES = 3;
const EDGE = 0.2;
/** Least requests of a backlog. The throughput of a mix settles later, because a batch has few long prompts. */
const ALONE_REQUESTS = 200;
const MIXED_REQUESTS = 1_500;

/** An index, drawn in proportion to its share. */
function drawn(shares: readonly number[], random: Random): number {
  let left = random() * shares.reduce((sum, share) => sum + share, 0);
  for (const [i, share] of shares.entries()) {
    left -= share;
    if (left < 0) return i;
  }
  return shares.length - 1;
}

/** Mean lengths of a mix of kinds, weighted by requests; without a flow, all kinds count equally. */
function mixed(kinds: readonly FittedKind[], flow: readonly number[]): Moments {
  const total = flow.reduce((sum, one) => sum + one, 0);
  const weight = (j: number) => (total > 0 ? (flow[j] ?? 0) / total : 1 / kinds.length);
  const sum = (of: (kind: FittedKind) => number) => kinds.reduce((all, kind, j) => all + weight(j) * of(kind), 0);
  return {
    input: { mean: sum((k) => k.moments.input.mean), square: sum((k) => k.moments.input.square) },
    output: { mean: sum((k) => k.moments.output.mean), square: sum((k) => k.moments.output.square) },
  };
}

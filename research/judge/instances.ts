import { findGpu, findModel, type HardwareCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { parameters } from '../../scheduler/catalogue/model.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import type { Demand, Pool } from '../../scheduler/solver/planning-problem.ts';

const MODELS = ['Qwen3-8B', 'Llama-3.1-8B-Instruct', 'Llama-2-13b-hf', 'Qwen3-32B', 'Qwen3-1.7B'];
const GPUS = ['A100-80-SXM', 'H100-SXM', 'L40S', 'GH200-96'];
const LENGTHS = [
  { input: 300, output: 200 },
  { input: 1200, output: 80 },
] as const;
/** Nodes, and GPUs of each. */
const SHAPES = [
  [1, 1],
  [1, 2],
  [2, 1],
  [3, 1],
  [1, 4],
  [2, 2],
] as const;
/** Most GPUs of all pools together. */
const GPUS_MAX = 6;
/** Rates as shares of the GPUs' total capacity, from idle to twice too high. */
const LOADS = [0.01, 0.1, 0.4, 0.7, 0.85, 0.95, 1.05, 2];
/** Approximate requests/s of one GPU at which 8 billion parameters keep it busy. */
const RATE_OF_8B = 12;

export interface Instance {
  pools: Pool[];
  demands: Demand[];
}

/**
 * A planning problem that is small enough to try every plan: up to three models and two kinds of GPU, at most six GPUs.
 * Rates range from nearly zero to twice the capacity, divided evenly or mostly for one model.
 */
export function tinyInstance(catalogue: HardwareCatalogue, seed: number): Instance {
  const random = seededRandom(seed * 7919 + 1);
  const draw = <T>(from: readonly T[], without: readonly T[] = []): T => {
    const left = from.filter((one) => !without.includes(one));
    const found = left[Math.floor(random() * left.length)];
    if (found === undefined) throw new Error('nothing to draw from');
    return found;
  };
  const kinds = random() < 0.25 ? 1 : 2;
  const pools: Pool[] = [];
  for (let i = 0; i < kinds; i++) {
    const left = GPUS_MAX - pools.reduce((sum, pool) => sum + pool.nodes * pool.gpusPerNode, 0);
    const [nodes, gpusPerNode] = draw(SHAPES.filter(([n, g]) => n * g <= left - (kinds - 1 - i)));
    const gpu = findGpu(
      catalogue,
      draw(
        GPUS,
        pools.map(({ gpu: { id } }) => id),
      ),
    );
    const tier = i > 0 && random() < 0.3 ? 'volatile' : 'stable';
    pools.push({ id: `pool ${i + 1}`, gpu, nodes, gpusPerNode, tier });
  }
  const gpus = pools.reduce((sum, pool) => sum + pool.nodes * pool.gpusPerNode, 0);
  const load = draw(LOADS);
  const count = 1 + Math.floor(random() * 3);
  const names: string[] = [];
  for (let i = 0; i < count; i++) names.push(draw(MODELS, names));
  const weights = names.map(() => (random() < 0.3 ? 0.05 : 0.2 + random()));
  const total = weights.reduce((sum, one) => sum + one, 0);
  const demands = names.map((name, i): Demand => {
    const model = findModel(catalogue, name);
    const { input, output } = draw(LENGTHS);
    const size = parameters(model) / 8e9;
    const lengths = (mean: number) => ({ kind: 'lognormal', mean, sd: mean / 2 }) as const;
    return {
      model,
      rate: ((load * gpus * RATE_OF_8B) / size) * ((weights[i] ?? 0) / total),
      cv: 1,
      input: lengths(input),
      output: lengths(output),
      weights: 'bf16',
      kv: 'bf16',
      alwaysOn: random() < 0.2,
    };
  });
  return { pools, demands };
}

import { type HardwareCatalogue, PUBLIC_SOURCE } from '../../../scheduler/catalogue/catalogue.ts';
import { layerCount } from '../../../scheduler/catalogue/model.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import type { Demand, Pool } from '../../../scheduler/solver/planning-problem.ts';

/**
 * A planning problem with `models` models and `kinds` kinds of GPU, drawn from the catalog: shapes repeat, rates and
 * lengths do not. `load` scales all rates.
 */
export function drawInstance(
  catalogue: HardwareCatalogue,
  models: number,
  kinds: number,
  seed: number,
  load: number,
): { pools: Pool[]; demands: Demand[] } {
  const random = seededRandom(seed);
  const priced = catalogue.gpus.filter(({ usdPerHour }) => usdPerHour > 0);
  const pools = Array.from({ length: kinds }, (_, i): Pool => {
    const gpu = priced[Math.floor((i * priced.length) / kinds)];
    if (gpu === undefined) throw new Error('a catalogue without GPUs');
    const nodes = Math.ceil((2 + Math.floor(random() * 5)) * Math.max(1, models / kinds / 2));
    return { id: `pool ${i + 1}`, gpu, nodes, gpusPerNode: gpu.gpusPerNode >= 8 ? 8 : 4 };
  });
  // The models with which the timings in the docs were always measured.
  const known = catalogue.models.filter(({ source }) => source !== PUBLIC_SOURCE);
  const demands = Array.from({ length: models }, (_, i): Demand => {
    const model = known[i % known.length];
    if (model === undefined) throw new Error('a catalogue without models');
    // Larger models get fewer requests.
    const size = layerCount(model) * model.hidden ** 2;
    return {
      model: { ...model, id: `${model.id} #${i + 1}` },
      rate: (load * (0.5 + random() * 4) * 9e10) / size,
      cv: 1,
      input: { kind: 'lognormal', mean: 200 + random() * 1500, sd: 400 },
      output: { kind: 'lognormal', mean: 50 + random() * 400, sd: 200 },
      weights: 'bf16',
      kv: 'bf16',
    };
  });
  return { pools, demands };
}

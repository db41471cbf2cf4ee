/** The file with the plan for a factory; factory/demand/plan-file.ts reads it. */
import { writePrivateFile } from '../../node/private-file.ts';
import { FACTORY_LABEL } from '../../shared/factory/factory-exchange.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { Placement } from '../solver/planning-problem.ts';
import type { Observation } from './observation.ts';

export interface PlanFilePlacement {
  model: string;
  replicas: number;
  pool?: string;
  /** Class of the GPUs. If `gpu` and `tp` are both absent, the factory chooses the GPUs. */
  gpu?: string;
  tp?: number;
  spread?: Parallelism;
}

/** The planned replicas on agents, together with the replicas on clusters that the factory must keep. */
export function planFor({ pools, others }: Observation, wanted: readonly Placement[]): PlanFilePlacement[] {
  const classes = new Map(pools.map(({ id, gpu }) => [id, gpu.class]));
  const jobs = others.filter(({ labels }) => labels[FACTORY_LABEL] !== undefined);
  return [
    ...wanted.flatMap((one): PlanFilePlacement[] => {
      const gpu = classes.get(one.pool);
      return one.replicas === 0 ? [] : [{ ...one, ...(gpu === undefined ? {} : { gpu }) }];
    }),
    ...jobs.flatMap(({ models: [model] }) => (model === undefined ? [] : [{ model, replicas: 1 }])),
  ];
}

/**
 * Writes the file atomically, because a factory may read it at any moment. `wave`: number of replicas of a model that
 * change at the same time.
 *
 * @throws SchedulerError `bad_input`
 */
export function writePlan(path: string, placements: readonly PlanFilePlacement[], wave = 1): void {
  try {
    writePrivateFile(path, `${JSON.stringify({ wave, placements }, null, 2)}\n`);
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot write the plan ${path}: ${errorText(cause)}`, { cause });
  }
}

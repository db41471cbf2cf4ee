import { writeFileSync } from 'node:fs';
import { FEATURES } from '../../../../scheduler/regions/learned/entry-state.ts';
import { type PolicyFile, readPolicyParameters } from '../../../../scheduler/regions/learned/policy-file.ts';
import { ResidualPolicy } from './residual-policy.ts';

/** How a policy was trained, as its file says it. */
interface Training {
  seed: number;
  iterations: number;
  slots: number;
  traces: readonly number[];
  validation: readonly number[];
}

/** `topologies`: on which it was trained. */
export function writePolicy(
  path: string,
  topologies: readonly string[],
  { policy, curve }: { policy: ResidualPolicy; curve: readonly PolicyFile['curve'][number][] },
  options: Training,
): void {
  const parameters = Buffer.from(Float32Array.from(policy.network.parameters).buffer).toString('base64');
  const value: PolicyFile = {
    format: 'otela-regions-policy 2',
    features: FEATURES,
    seed: options.seed,
    trained_on: `${topologies.join(', ')}: Poisson arrivals, seeds ${options.traces.join(', ')}, ${options.slots} slots of 45 s, ${options.iterations} iterations; chosen by seeds ${options.validation.join(', ')}`,
    curve: curve.map((point) => ({
      iteration: point.iteration,
      objective: Number(point.objective.toFixed(3)),
      distance: Number(point.distance.toFixed(4)),
      change: Number(point.change.toFixed(4)),
    })),
    parameters,
  };
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** @throws SchedulerError `bad_input` if the file is missing, broken, or of another network */
export function readPolicy(path: string): ResidualPolicy {
  const policy = new ResidualPolicy();
  policy.network.parameters.set(readPolicyParameters(path));
  return policy;
}

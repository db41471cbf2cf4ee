import { readFileSync, writeFileSync } from 'node:fs';
import * as z from 'zod';
import { SchedulerError } from '../../../../scheduler/errors.ts';
import { FEATURES } from './features.ts';
import { ResidualPolicy } from './residual-policy.ts';

/** The network has some thousand parameters of 4 bytes. */
const PARAMETERS_CHARS_MAX = 64 << 10;

const fileSchema = z.strictObject({
  format: z.literal('otela-regions-policy 2'),
  /** The policy reads the state entry by entry, so that it plans any regions. */
  features: z.literal(FEATURES),
  seed: z.number().int(),
  trained_on: z.string().max(512),
  curve: z
    .array(z.object({ iteration: z.number(), objective: z.number(), distance: z.number(), change: z.number() }))
    .max(1_000),
  /** Float32, little endian, base64. */
  parameters: z.string().max(PARAMETERS_CHARS_MAX),
});

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
  { policy, curve }: { policy: ResidualPolicy; curve: readonly z.infer<typeof fileSchema>['curve'][number][] },
  options: Training,
): void {
  const parameters = Buffer.from(Float32Array.from(policy.network.parameters).buffer).toString('base64');
  const value: z.infer<typeof fileSchema> = {
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
  const file = parse(path);
  const policy = new ResidualPolicy();
  const bytes = Buffer.from(file.parameters, 'base64');
  const { parameters } = policy.network;
  if (bytes.length !== 4 * parameters.length)
    throw new SchedulerError('bad_input', `${path} has ${bytes.length / 4} parameters, not ${parameters.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let i = 0; i < parameters.length; i++) parameters[i] = view.getFloat32(4 * i, true);
  if (!parameters.every(Number.isFinite))
    throw new SchedulerError('bad_input', `${path} has parameters that are no numbers`);
  return policy;
}

function parse(path: string): z.infer<typeof fileSchema> {
  try {
    return fileSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (cause) {
    throw new SchedulerError('bad_input', `${path} is no policy for regions`, { cause });
  }
}

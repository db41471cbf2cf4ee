import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import * as z from 'zod';
import { SchedulerError } from '../../../../scheduler/errors.ts';
import { seededRandom } from '../../../../scheduler/simulator/random.ts';
import type { Topology } from '../../world/topology.ts';
import { BetaPolicy } from './policy.ts';
import type { Trained, TrainOptions } from './train.ts';

/** A policy of 50 regions has some 200,000 parameters of 4 bytes. */
const PARAMETERS_CHARS_MAX = 4 << 20;

const fileSchema = z.strictObject({
  format: z.literal('otela-regions-policy 1'),
  topology: z.string().max(64),
  /** Hash of the regions' names and latencies: a topology with the same name may differ. */
  fingerprint: z.string().length(16),
  regions: z.number().int().min(1).max(1_000),
  seed: z.number().int(),
  trained_on: z.string().max(512),
  curve: z
    .array(z.object({ episode: z.number(), reward: z.number(), distance: z.number(), change: z.number() }))
    .max(10_000),
  /** Float32, little endian, base64. */
  parameters: z.string().max(PARAMETERS_CHARS_MAX),
});

function fingerprint({ regions, latencyS }: Topology): string {
  const text = JSON.stringify([regions.map(({ name }) => name), latencyS.map((line) => line.map((s) => s.toFixed(6)))]);
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

export function writePolicy(path: string, topology: Topology, { policy, curve }: Trained, options: TrainOptions): void {
  const parameters = Buffer.from(Float32Array.from(policy.network.parameters).buffer).toString('base64');
  const value: z.infer<typeof fileSchema> = {
    format: 'otela-regions-policy 1',
    topology: topology.id,
    fingerprint: fingerprint(topology),
    regions: policy.regions,
    seed: options.seed,
    trained_on: `synthetic Poisson arrivals, seeds ${options.traces.join(', ')}, ${options.slots} slots of 45 s, ${options.episodes} episodes`,
    curve,
    parameters,
  };
  writeFileSync(path, `${JSON.stringify(value, null, 1)}\n`);
}

/** @throws SchedulerError `bad_input` if the file is missing, broken, or for other regions */
export function readPolicy(path: string, topology: Topology): BetaPolicy {
  const file = parse(path);
  if (file.fingerprint !== fingerprint(topology))
    throw new SchedulerError(
      'bad_input',
      `${path} was trained for ${file.topology}, not for these regions of ${topology.id}`,
    );
  const policy = new BetaPolicy(file.regions, seededRandom(1));
  const bytes = Buffer.from(file.parameters, 'base64');
  if (bytes.length !== 4 * policy.network.parameters.length)
    throw new SchedulerError(
      'bad_input',
      `${path} has ${bytes.length / 4} parameters, not ${policy.network.parameters.length}`,
    );
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let i = 0; i < policy.network.parameters.length; i++)
    policy.network.parameters[i] = view.getFloat32(4 * i, true);
  if (!policy.network.parameters.every(Number.isFinite))
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

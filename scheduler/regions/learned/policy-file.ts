import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import { SchedulerError } from '../../errors.ts';
import { FEATURES } from './entry-state.ts';
import { FeedForward } from './feed-forward.ts';
import { LAYERS } from './learned-policy.ts';

/** The network has some thousand parameters of 4 bytes. */
const PARAMETERS_CHARS_MAX = 64 << 10;
const FILE_BYTES_MAX = 1 << 20;

const policyFileSchema = z.strictObject({
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
export type PolicyFile = z.infer<typeof policyFileSchema>;

/**
 * Parameters of `learnedPolicy`.
 *
 * @throws SchedulerError `bad_input` if the file is missing, broken, or of another network
 */
export function readPolicyParameters(path: string): Float64Array {
  const bytes = Buffer.from(parse(path).parameters, 'base64');
  const { length } = new FeedForward(LAYERS).parameters;
  if (bytes.length !== 4 * length)
    throw new SchedulerError('bad_input', `${path} has ${bytes.length / 4} parameters, not ${length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const parameters = Float64Array.from({ length }, (_, i) => view.getFloat32(4 * i, true));
  if (!parameters.every(Number.isFinite))
    throw new SchedulerError('bad_input', `${path} has parameters that are not finite`);
  return parameters;
}

function parse(path: string): PolicyFile {
  try {
    if (statSync(path).size > FILE_BYTES_MAX) throw new Error(`larger than ${FILE_BYTES_MAX} bytes`);
    return policyFileSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (cause) {
    throw new SchedulerError('bad_input', `${path} is not a policy for regions`, { cause });
  }
}

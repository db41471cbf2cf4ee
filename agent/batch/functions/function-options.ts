/** What a packed function declares about its processes; see clients/python. */
import * as z from 'zod';
import { environmentFilesSchema } from '../../../shared/batch/function-files.ts';
import { DECLARED_SECRETS_MAX, SECRET_NAME } from '../../../shared/batch/function-secret.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';

/** Maximum number of declared packages or weights, and the maximum length of each. */
const DECLARED_MAX = 128;
const TEXT_MAX_CHARS = 512;
const GPUS_MAX = 64;
/** Maximum number of inputs in one call: a lease has at most this many lines. */
export const BATCH_MAX = 100;
/** A day. A process that stays loaded uses its GPU memory, although no call needs it. */
const KEEP_MAX_S = 86_400;
/** A week: longer than any job of a cluster. */
const TIMEOUT_MAX_S = 604_800;

/** A package with its version and markers. Options of the installer, addresses and paths are refused. */
const requirement = z
  .string()
  .max(TEXT_MAX_CHARS)
  .regex(/^[A-Za-z0-9][^@/\\:\r\n\0]*$/);
const repository = z.string().max(TEXT_MAX_CHARS);

const optionsSchema = z.object({
  /** Packages, as pip names them. */
  requirements: z.array(requirement).max(DECLARED_MAX).default([]),
  python: z
    .string()
    .regex(/^3\.\d{1,2}$/)
    .exactOptional(),
  /** SHA-256 of a packed environment with Python, in place of packages. */
  environment: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .exactOptional(),
  weights: z.array(repository).max(DECLARED_MAX).default([]),
  gpus: z.int().min(0).max(GPUS_MAX).exactOptional(),
  memory_bytes: z.int().positive().exactOptional(),
  /** Number of inputs in one call; `auto`: calls grow until one takes a second. */
  batch_size: z.union([z.literal('auto'), z.int().min(1).max(BATCH_MAX)]).default('auto'),
  /** Names of the owner's secrets that its processes get as environment variables. */
  secrets: z.array(z.string().regex(SECRET_NAME)).max(DECLARED_SECRETS_MAX).exactOptional(),
  /** Seconds for which a process without calls stays loaded. */
  keep_s: z.number().min(0).max(KEEP_MAX_S).exactOptional(),
  timeout_s: z.number().positive().max(TIMEOUT_MAX_S).exactOptional(),
});
const bundleSchema = z.object({
  opentela_function: z.literal(1),
  options: optionsSchema,
  environment_files: environmentFilesSchema.exactOptional(),
});

export interface FunctionOptions extends z.infer<typeof optionsSchema> {
  /** Ids of the gateway's files with the pieces of the packed environment. */
  environmentFiles?: readonly string[];
}

const NONE: FunctionOptions = { requirements: [], weights: [], batch_size: 'auto' };

/** Returns the options of a bundle; for Python source, which declares nothing, the defaults. @throws Error */
export function readFunctionOptions(code: string): FunctionOptions {
  const value = code.startsWith('{') ? tryParseJson(code) : undefined;
  if (typeof value !== 'object' || value === null || !('opentela_function' in value)) return NONE;
  const { data, error } = bundleSchema.safeParse(value);
  if (data !== undefined) {
    const { options, environment_files: environmentFiles } = data;
    return environmentFiles === undefined ? options : { ...options, environmentFiles };
  }
  const [issue] = error.issues;
  throw new Error(`the function declares something that this node cannot read: ${issue?.path.join('.')}`);
}

/**
 * What jobs of one cluster need: partition, account, modules, scratch directory, proxy, container. The gateway's
 * operator writes it once, and `otela-agent sbatch` gets it with the join token. Its values go into a job script that
 * runs with the rights of the user, so each value is one word, a path or a URL, and never a command.
 */
import * as z from 'zod';
import { JOB_CONTAINERS, JOB_ENGINES, SBATCH_OPTIONS_MAX } from './job-script.ts';

/** Texts that `directiveWord` and `directiveExpression` leave as they are. */
const word = z.string().regex(/^[\w.:,@/-]{1,128}$/, 'must be one word');
const expression = z.string().regex(/^[\w.:,@/=+%&|*()[\]!<>-]{1,256}$/, "must be one word in Slurm's form");
const time = z.string().regex(/^[\w.:,@/-]{1,32}$/, 'must be one word');
/** A path that may contain variables such as `$USER`, but no other syntax of a shell. */
const path = z.string().regex(/^[/$][\w./$-]{0,255}$/, 'must be an absolute path; variables such as $USER are allowed');
const engineArgument = z
  .string()
  .max(256)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are refused
  .regex(/^[^\u0000-\u001f\u007f]*$/);
const MODELS_MAX = 200;

const modelSchema = z.strictObject({
  gpus: z.int().min(1).max(64).optional(),
  engine: z.enum(JOB_ENGINES).optional(),
  time: time.optional(),
  /** Further arguments of the engine. */
  arguments: z.array(engineArgument).max(32).optional(),
});
export type SiteModel = z.infer<typeof modelSchema>;

export const siteProfileSchema = z.strictObject({
  partition: word.optional(),
  account: word.optional(),
  qos: word.optional(),
  constraint: expression.optional(),
  time: time.optional(),
  mem: z
    .string()
    .regex(/^\d{1,9}[KMGT]?$/i)
    .optional(),
  cpus: z.int().min(1).max(99_999).optional(),
  /** Slurm's name of the GPU type. */
  gpu_type: word.optional(),
  /** Memory of one GPU in GiB, from which the number of GPUs of a model follows. */
  gpu_memory_gib: z.number().min(1).max(4_096).optional(),
  sbatch_options: z.array(expression).max(SBATCH_OPTIONS_MAX).optional(),
  container: z.enum(JOB_CONTAINERS).optional(),
  image: z
    .string()
    .regex(/^\/[\w./-]{1,255}$/, 'must be an absolute path')
    .optional(),
  /** Modules that the job loads. */
  modules: z
    .array(z.string().regex(/^[\w@+.][\w@+./-]{0,127}$/, 'must be the name of a module'))
    .max(16)
    .optional(),
  /** Directory for weights: HF_HOME is `huggingface` below it. */
  scratch: path.optional(),
  /** HTTP proxy of the compute nodes. */
  proxy: z
    .string()
    .regex(/^https?:\/\/[\w.:[\]-]{1,255}\/?$/, 'must be a URL such as http://proxy:3128')
    .optional(),
  /** Settings by model; `*` in a name stands for any text. The first name that matches counts. */
  models: z
    .record(z.string().max(256), modelSchema)
    .refine((all) => Object.keys(all).length <= MODELS_MAX)
    .optional(),
});
export type SiteProfile = z.infer<typeof siteProfileSchema>;

/** Profiles by `PROVIDER/CLUSTER`, or by `PROVIDER` for all clusters of a provider. */
export const SITES_MAX = 64;
export const sitesSchema = z
  .record(
    z.string().regex(/^[a-z0-9-]{1,63}(?:\/[a-z0-9-]{1,63})?$/, 'must be PROVIDER or PROVIDER/CLUSTER'),
    siteProfileSchema,
  )
  .refine((all) => Object.keys(all).length <= SITES_MAX, `at most ${SITES_MAX} sites`);
export type Sites = z.infer<typeof sitesSchema>;

export function siteOf(sites: Sites, provider: string, cluster: string | undefined): SiteProfile | undefined {
  const names = [...(cluster === undefined ? [] : [`${provider}/${cluster}`]), provider];
  const found = names.find((name) => Object.hasOwn(sites, name));
  return found === undefined ? undefined : sites[found];
}

export function siteModel({ models = {} }: SiteProfile, model: string): SiteModel | undefined {
  return Object.entries(models).find(([pattern]) => matches(pattern, model))?.[1];
}

function matches(pattern: string, text: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  if (!text.startsWith(first)) return false;
  if (rest.length === 0) return text === first;
  let from = first.length;
  for (const part of rest.slice(0, -1)) {
    const at = text.indexOf(part, from);
    if (at < 0) return false;
    from = at + part.length;
  }
  const last = rest.at(-1) ?? '';
  return text.length - last.length >= from && text.endsWith(last);
}

/** Bytes per parameter by the precision that a model's name states; 2 (bfloat16) if it states none. */
const PRECISIONS: readonly [RegExp, number][] = [
  [/(?:awq|gptq|int4|w4a16|mxfp4|nvfp4|fp4|4bit)/i, 0.55],
  [/(?:fp8|int8|w8a8|8bit)/i, 1],
];
/** Share of a GPU's memory that vLLM uses by default. */
const USED_SHARE = 0.9;
/** Weights, KV cache and activations, as a multiple of the weights. */
const WITH_CACHE = 1.2;
const GIB = 1024 ** 3;

/**
 * The number of GPUs by the size in a model's name, such as `70B`: the smallest power of two that holds weights and KV
 * cache. Undefined if the name states no size.
 */
export function gpusBySize(model: string, gpuMemoryGib: number): number | undefined {
  const sizes = [...model.matchAll(/(?<![\dA-Za-z.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z])/g)].map(([, size]) =>
    Number(size),
  );
  if (sizes.length === 0) return undefined;
  const bytes = PRECISIONS.find(([pattern]) => pattern.test(model))?.[1] ?? 2;
  const gib = (Math.max(...sizes) * 1e9 * bytes * WITH_CACHE) / GIB;
  return 2 ** Math.max(0, Math.ceil(Math.log2(gib / (gpuMemoryGib * USED_SHARE))));
}

/** The precision of an engine's weights: from its command line, and the checkpoint's config.json on this machine. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { commandWords, flagValue } from './engine-command.ts';
import { modelPath } from './models-in-command.ts';

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Maximum size of a config.json. Some models' files list each layer that is not quantized; those of DeepSeek and
 * modelopt are below 1 MiB.
 */
const CONFIG_MAX_BYTES = 4 * 1024 * 1024;
/** Maximum number of revisions of one repository in a cache. */
const SNAPSHOTS_MAX = 16;

/** Flags with which the engine may hold its weights in another precision than the checkpoint's. */
const CHANGES_PRECISION =
  /^(-q|--(quanti|config|hf-(?!token)|load-format|torchao|model-loader|modelopt|json-model).*)$/;

/**
 * The precision of the checkpoint, such as `bfloat16` or `fp8`, in which vLLM and SGLang hold the weights unless a flag
 * says otherwise. Undefined if the precision is not certain, because a client may require one. Never rejects.
 */
export async function checkpointPrecision(
  command: readonly string[] | undefined,
  env: Env,
): Promise<string | undefined> {
  const words = commandWords(command ?? []);
  const path = modelPath(words);
  // A shell variable in the command may hold flags that change the precision.
  if (path === undefined || words.some((word) => word.includes('$') || CHANGES_PRECISION.test(word))) return undefined;
  const precisions = await Promise.all((await foldersOf(path, words, env)).map(folderPrecision));
  // The command does not show which revision the engine loaded. So all of them must have the same precision.
  return precisions.every((precision) => precision === precisions[0]) ? precisions[0] : undefined;
}

/** The folders that may hold the checkpoint: the path itself, or the snapshots in the hub's cache. */
async function foldersOf(path: string, words: readonly string[], env: Env): Promise<string[]> {
  if (isAbsolute(path)) return [path];
  if (!/^[\w-][\w.-]*\/[\w-][\w.-]*$/.test(path)) return [];
  const caches = env.XDG_CACHE_HOME || join(env.HOME ?? homedir(), '.cache');
  const cache =
    flagValue(words, '--download-dir') ?? (env.HF_HUB_CACHE || join(env.HF_HOME || join(caches, 'huggingface'), 'hub'));
  const snapshots = join(cache, `models--${path.replace('/', '--')}`, 'snapshots');
  const names = await readdir(snapshots).catch(() => []);
  return names.length > SNAPSHOTS_MAX ? [] : names.map((name) => join(snapshots, name));
}

async function folderPrecision(folder: string): Promise<string | undefined> {
  const config = configSchema.safeParse(await readJson(join(folder, 'config.json'))).data;
  if (config === undefined) return undefined;
  // Earlier versions of modelopt describe the quantization in a separate file beside config.json.
  const beside = besideSchema.safeParse(await readJson(join(folder, 'hf_quant_config.json'))).data;
  return configPrecision(config, beside?.quantization);
}

/** The fields of a `config.json` that describe how the weights are stored. */
type CheckpointConfig = z.infer<typeof configSchema>;

/**
 * Returns undefined if the form of the quantization is not known.
 * @param beside the quantization according to a separate file
 */
function configPrecision(config: CheckpointConfig, beside?: Quantization): string | undefined {
  const { text_config: text } = config;
  const quantization =
    config.quantization_config ??
    config.compression_config ??
    text?.quantization_config ??
    config.quantization ??
    beside;
  if (quantization) return quantizedPrecision(quantization);
  return config.torch_dtype ?? config.dtype ?? text?.torch_dtype ?? text?.dtype ?? undefined;
}

function quantizedPrecision(form: Quantization): string | undefined {
  const method = form.quant_method?.toLowerCase() ?? '';
  const algorithm = form.quant_algo?.toLowerCase() ?? '';
  const named = /mxfp4|nvfp4|fp8/.exec(`${algorithm} ${method}`)?.[0];
  if (named !== undefined) return named;
  const groups = Object.values(form.config_groups ?? {}).flatMap(({ weights }) => weights ?? []);
  if (groups.length > 0) {
    const least = groups.reduce((a, b) => (b.num_bits < a.num_bits ? b : a));
    return `${least.type === 'float' ? 'fp' : 'int'}${least.num_bits}`;
  }
  if (method === 'bitsandbytes') return form.load_in_8bit === true ? 'int8' : 'nf4';
  const bits = form.bits ?? form.w_bit ?? (method === 'awq' ? 4 : undefined);
  return bits === undefined ? undefined : `int${bits}`;
}

const bitsSchema = z.number().int().min(1).max(64);

const quantizationSchema = z.object({
  quant_method: z.string().nullish(),
  /** Written by modelopt. */
  quant_algo: z.string().nullish(),
  /** Written by GPTQ and AWQ. */
  bits: bitsSchema.nullish(),
  w_bit: bitsSchema.nullish(),
  load_in_8bit: z.boolean().nullish(),
  /** Written by compressed-tensors. */
  config_groups: z
    .record(z.string(), z.object({ weights: z.object({ type: z.string().nullish(), num_bits: bitsSchema }).nullish() }))
    .nullish(),
});
type Quantization = z.infer<typeof quantizationSchema>;

/**
 * The type in which weights without quantization are stored; transformers 5 calls it `dtype`. `float32` is not among
 * them, because engines convert such weights unless a flag forbids it.
 */
const dtypeSchema = z.enum(['bfloat16', 'float16']).nullish().catch(undefined);

const partSchema = z.object({
  dtype: dtypeSchema,
  torch_dtype: dtypeSchema,
  quantization_config: quantizationSchema.nullish(),
});

const configSchema = partSchema.extend({
  text_config: partSchema.nullish(),
  compression_config: quantizationSchema.nullish(),
  quantization: quantizationSchema.nullish(),
});

const besideSchema = z.object({ quantization: quantizationSchema });

/** Undefined if there is no such file, or no JSON in it. */
async function readJson(path: string): Promise<unknown> {
  try {
    const file = await stat(path);
    // Reading a pipe could wait forever.
    if (!file.isFile() || file.size > CONFIG_MAX_BYTES) return undefined;
    return tryParseJson(await readFile(path, 'utf8'));
  } catch {
    return undefined;
  }
}

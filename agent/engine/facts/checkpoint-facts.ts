/** Facts about an engine's checkpoint, from its files on this machine. */
import { readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { quantizationBits } from '../../../shared/routing/requirement-facts.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { commandWords, flagValue } from '../engine-command.ts';
import { engineKind } from '../engine-kinds.ts';
import { modelPath } from '../models-in-command.ts';
import { configFacts, parseConfig } from './checkpoint-config.ts';
import { checkpointParameters } from './checkpoint-parameters.ts';
import { readGgufHeader } from './gguf-header.ts';
import { acceptedFacts, type ModelFacts } from './model-facts.ts';
import { readRegularFile } from './open-regular-file.ts';

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
/** Flags with which the engine may accept fewer kinds of input than the model. */
const CHANGES_INPUT = /^--(limit-mm-per-prompt|language-model-only|disable-multimodal|enable-multimodal|config)/;
/** Flags with which the engine returns something other than text. */
const CHANGES_OUTPUT = /^--(task|runner|convert|is-embedding|config)/;

/** The place of an engine's checkpoint, and the facts about it that flags of the engine may change. */
export interface CheckpointSource {
  /** Directory, GGUF file, or name on the hub. */
  path: string;
  /** The engine's variables, which name the hub's cache. */
  env: Env;
  /** Working directory of the engine, to which a relative path refers. */
  directory?: string | undefined;
  /** Directory of vLLM's and SGLang's `--download-dir`. */
  downloads?: string | undefined;
  /** True if no flag of the engine changes the precision of the weights. Undefined: its flags are not known. */
  unchanged: boolean | undefined;
  unchangedInput?: boolean;
  unchangedOutput?: boolean;
}

/**
 * The checkpoint of the model `id` according to a known engine's command. Undefined if the command does not show it.
 */
export function checkpointOf(
  command: readonly string[] | undefined,
  env: Env,
  directory: string | undefined,
  id: string,
): CheckpointSource | undefined {
  const words = commandWords(command ?? []);
  // Such an engine names a revision as `org/model@revision`.
  const path = modelPath(words) ?? (engineKind(words)?.servesHubCache === true ? id.replace(/@.*$/, '') : undefined);
  if (path === undefined) return undefined;
  // A shell variable in the command may hold any flag.
  const changed = (flags: RegExp) => words.some((word) => word.includes('$') || flags.test(word));
  return {
    path,
    env,
    directory,
    downloads: flagValue(words, '--download-dir'),
    unchanged: !changed(CHANGES_PRECISION),
    unchangedInput: !changed(CHANGES_INPUT),
    unchangedOutput: !changed(CHANGES_OUTPUT),
  };
}

/** Facts about the checkpoint. A fact that is not certain is absent, because a client may require it. Never rejects. */
export async function checkpointFacts(source: CheckpointSource): Promise<ModelFacts> {
  if (/\.gguf$/i.test(source.path)) return ggufFacts(source);
  const found = await Promise.all((await foldersOf(source)).map((folder) => folderFacts(folder, source)));
  // It is not known which revision the engine loaded. So only facts that all of them share are certain.
  const [first, ...others] = found;
  const shared = Object.entries(first ?? {}).filter(([key, value]) =>
    others.every(
      (other) => JSON.stringify(Object.entries(other).find(([name]) => name === key)?.[1]) === JSON.stringify(value),
    ),
  );
  return acceptedFacts(Object.fromEntries(shared));
}

async function ggufFacts({ path, directory }: CheckpointSource): Promise<ModelFacts> {
  const file = isAbsolute(path) ? path : directory === undefined ? undefined : join(directory, path);
  const header = file === undefined ? undefined : await readGgufHeader(file);
  return acceptedFacts({ quantization: header?.precision, parameters: header?.parameters });
}

/** The folders that may hold the checkpoint: the path itself, or the snapshots in the hub's cache. */
async function foldersOf({ path, env, directory, downloads }: CheckpointSource): Promise<string[]> {
  if (isAbsolute(path)) return [path];
  // Engines look for a folder first.
  const local = directory === undefined ? undefined : join(directory, path);
  if (local !== undefined && (await configOf(local)) !== undefined) return [local];
  if (!/^[\w-][\w.-]*\/[\w-][\w.-]*$/.test(path)) return [];
  const caches = env.XDG_CACHE_HOME || join(env.HOME ?? homedir(), '.cache');
  const cache = downloads ?? (env.HF_HUB_CACHE || join(env.HF_HOME || join(caches, 'huggingface'), 'hub'));
  const snapshots = join(cache, `models--${path.replace('/', '--')}`, 'snapshots');
  const names = await readdir(snapshots).catch(() => []);
  return names.length > SNAPSHOTS_MAX ? [] : names.map((name) => join(snapshots, name));
}

async function configOf(folder: string) {
  return parseConfig(await readJson(join(folder, 'config.json')));
}

async function folderFacts(
  folder: string,
  source: CheckpointSource,
): Promise<Partial<Record<keyof ModelFacts, unknown>>> {
  const config = await configOf(folder);
  if (config === undefined) return {};
  const { precision, quantized, context, modalities } = configFacts(
    config,
    await readJson(join(folder, 'hf_quant_config.json')),
  );
  const bits = quantized ? quantizationBits(precision ?? '') : undefined;
  // sentence-transformers' models have this file, and engines then return embeddings.
  const embeds = (await readJson(join(folder, 'modules.json'))) !== undefined;
  return {
    // A flag may quantize 16-bit weights, but never widens weights that are stored with fewer bits.
    ...((source.unchanged ?? quantized) ? { quantization: precision } : {}),
    context_length: context,
    ...(quantized && bits === undefined ? {} : { parameters: await checkpointParameters(folder, bits) }),
    ...(source.unchangedInput === false ? {} : { input_modalities: modalities?.input }),
    ...(source.unchangedOutput === false ? {} : { output_modalities: embeds ? ['embedding'] : modalities?.output }),
  };
}

/** Undefined if there is no such file, or no JSON in it. */
async function readJson(path: string): Promise<unknown> {
  const text = await readRegularFile(path, CONFIG_MAX_BYTES);
  return text === undefined ? undefined : tryParseJson(text);
}

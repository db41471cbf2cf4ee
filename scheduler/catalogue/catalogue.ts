import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { findGpuClass } from '../../shared/hardware/classes.ts';
import { isGpuSlice } from '../../shared/slurm/gres.ts';
import { nearestNames } from '../../shared/text/nearest.ts';
import { SchedulerError } from '../errors.ts';
import { type Calibration, calibrationSchema } from './calibration.ts';
import { type Gpu, gpuFileSchema, gpuFromRow } from './gpu.ts';
import { gpuVariant } from './gpu-variant.ts';
import { isHuggingFaceConfig, modelFromConfig } from './huggingface.ts';
import { type Model, modelFileSchema, modelFromRow } from './model.ts';

/** All GPUs and models that can be named, and how well the GPUs keep what their data sheets promise. */
export interface Catalogue {
  gpus: Gpu[];
  models: Model[];
  calibration: Calibration;
}

interface CatalogueFiles {
  gpus?: readonly string[];
  /** Models files or Hugging Face config.json files; `NAME=path/config.json` gives the served name. */
  models?: readonly string[];
  calibration?: string;
}

/** `data/model-configs.json`: facts of public `config.json` files, with what their publishers say of them. */
const publicConfigsSchema = z.object({
  models: z.array(z.object({ id: z.string().min(1).max(256), config: z.record(z.string(), z.unknown()) })).max(1000),
});
export const PUBLIC_SOURCE = 'public config.json';

/** Read at run time, so that a person may edit them; the bundle in dist/ has copies beside it. */
const DATA = [new URL('../data/', import.meta.url), new URL('./otela-plan-data/', import.meta.url)];

export function dataPath(name: string): string {
  const [source, bundled] = DATA.map((folder) => fileURLToPath(new URL(name, folder)));
  return source !== undefined && existsSync(source) ? source : (bundled ?? name);
}

/** The built-in tables and then the user's, whose rows win. */
export function loadCatalogue(files: CatalogueFiles = {}): Catalogue {
  const gpus = new Map<string, Gpu>();
  for (const path of [dataPath('gpus.json'), ...(files.gpus ?? [])]) {
    for (const row of parse(gpuFileSchema, readJson(path), path).gpus) gpus.set(row.id, gpuFromRow(row));
  }
  const models = new Map<string, Model>();
  for (const named of [dataPath('models.json'), dataPath('model-configs.json'), ...(files.models ?? [])]) {
    for (const model of readModels(named)) models.set(model.id, model);
  }
  const path = files.calibration ?? dataPath('calibration.json');
  return {
    gpus: [...gpus.values()],
    models: [...models.values()],
    calibration: readCalibration(path),
  };
}

export const readCalibration = (path: string): Calibration => parse(calibrationSchema, readJson(path), path);

function readModels(named: string): Model[] {
  const [, name, file = named] = /^([^=]+)=(.+)$/.exec(named) ?? [];
  const value = parseJson(
    readText(file).replace(PYTHON_NUMBERS, (_match, quoted?: string) => quoted ?? 'null'),
    file,
  );
  if (isHuggingFaceConfig(value))
    return [modelFromConfig(withQuantization(value, file), name ?? basename(dirname(file)))];
  const configs = publicConfigsSchema.safeParse(value);
  if (configs.success)
    return configs.data.models.map(({ id, config }) => ({ ...modelFromConfig(config, id), source: PUBLIC_SOURCE }));
  return parse(modelFileSchema, value, file).models.map(modelFromRow);
}

/** Python writes numbers that JSON has not: `Infinity` stands in the published `config.json` of Nemotron 3. */
const PYTHON_NUMBERS = /("(?:[^"\\]|\\.)*")|-?\bInfinity\b|\bNaN\b/g;

/** modelopt's older exports keep the quantisation in a file beside `config.json`. */
function withQuantization(config: object, file: string): object {
  const beside = join(dirname(file), 'hf_quant_config.json');
  if ('quantization_config' in config || !existsSync(beside)) return config;
  const quantization = readJson(beside);
  return typeof quantization === 'object' && quantization !== null ? { ...config, ...quantization } : config;
}

export function readJson(path: string): unknown {
  return parseJson(readText(path), path);
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new SchedulerError(
      'bad_input',
      `cannot read ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new SchedulerError(
      'bad_input',
      `${path} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
}

export function parse<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SchedulerError('bad_input', `${what}: ${z.prettifyError(parsed.error)}`);
}

/** By id, or by what a person or a driver calls it (`gh200`, `NVIDIA A100-SXM4-80GB`) with the memory in MiB where known. */
export function findGpu(catalogue: Catalogue, name: string, memoryMib?: number): Gpu {
  const exact = catalogue.gpus.find(({ id }) => id.toLowerCase() === name.toLowerCase());
  if (exact) return exact;
  // A part of a GPU has a part of its memory, bandwidth and units: no row tells how fast it is.
  const row = isGpuSlice(name) ? undefined : findGpuClass(name);
  const same = row === undefined ? [] : catalogue.gpus.filter((gpu) => gpu.class === row.name);
  const variant = gpuVariant(same, name, memoryMib);
  if (variant !== undefined) return variant;
  const names = catalogue.gpus.map(({ id }) => id);
  throw new SchedulerError(
    'unknown_gpu',
    `no GPU is called ${JSON.stringify(name.slice(0, 64))}; nearest: ${nearestNames(name, names).join(', ')} (otela-plan catalogue lists all; --gpus FILE adds one)`,
  );
}

/** By id, or by the part after the slash where only one model has it. */
export function findModel(catalogue: Catalogue, name: string): Model {
  const wanted = name.toLowerCase();
  const exact = catalogue.models.find(({ id }) => id.toLowerCase() === wanted);
  if (exact) return exact;
  const tails = catalogue.models.filter(({ id }) => id.toLowerCase().split('/').at(-1) === wanted);
  if (tails.length === 1 && tails[0]) return tails[0];
  const names = catalogue.models.map(({ id }) => id);
  throw new SchedulerError(
    'unknown_model',
    `no model is called ${JSON.stringify(name.slice(0, 256))}; nearest: ${nearestNames(name, names).join(', ')} (otela-plan catalogue lists all; --models config.json adds one)`,
  );
}

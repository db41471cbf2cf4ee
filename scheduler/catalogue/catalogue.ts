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
import { isHuggingFaceConfig, modelFromConfig } from './huggingface.ts';
import { type Model, modelFileSchema, modelFromRow } from './model.ts';

/** How far the memory that a name tells may be from the data sheet's: drivers and vendors round differently. */
const MEMORY_TOLERANCE = 0.08;
/** A device whose memory is this far from every GPU of its class is a part of one, or another GPU. */
const MEMORY_FAR = 0.3;
const GIB = 2 ** 30;

/**
 * Which of a class's GPUs a name means: the one with the memory that is asked for (`A100-80`, `A100-SXM4-80GB`, or `memoryMib`), then the one of
 * that form (SXM, PCIe, NVL, HGX); the first where the name tells neither. None where `memoryMib` is far from all.
 */
function gpuVariant(variants: readonly Gpu[], name: string, memoryMib?: number): Gpu | undefined {
  const wanted = memoryMib === undefined ? memoryOf(name) : memoryMib * 2 ** 20;
  const form = formOf(name);
  const share = (gpu: Gpu): number => (wanted === undefined ? 0 : Math.abs(gpu.memory / wanted - 1));
  const fits = (gpu: Gpu): boolean => share(gpu) <= MEMORY_TOLERANCE;
  // `GH200 480GB` tells the processor's memory: a number in a name that is no variant's says nothing.
  const tells = memoryMib !== undefined || variants.some(fits);
  const distance = (gpu: Gpu): number => (!tells || fits(gpu) ? 0 : share(gpu));
  const differs = (gpu: Gpu): number => (form === undefined || formOf(gpu.id) === form ? 0 : 1);
  const near = memoryMib === undefined ? variants : variants.filter((gpu) => share(gpu) <= MEMORY_FAR);
  return near.reduce<Gpu | undefined>((best, gpu) => {
    if (best === undefined) return gpu;
    const closer = distance(gpu) - distance(best) || differs(gpu) - differs(best);
    return closer < 0 ? gpu : best;
  }, undefined);
}

/** Bytes: the number behind the class (`A100-80`, `80GB`, `80G`); a class's own number is glued to its letter. */
function memoryOf(name: string): number | undefined {
  const found = /(?:^|[^a-z0-9])(\d{2,3})(?:\s?gi?b?)?(?=$|[^a-z0-9])/i.exec(name);
  return found === null ? undefined : Number(found[1]) * GIB;
}

function formOf(name: string): string | undefined {
  return /(sxm|pcie|nvl|hgx)\d*(?=$|[^a-z0-9])/i.exec(name)?.[1]?.toLowerCase();
}

/** All GPUs and models that can be named, and how well the GPUs keep what their data sheets promise. */
export interface HardwareCatalogue {
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
export function loadCatalogue(files: CatalogueFiles = {}): HardwareCatalogue {
  const gpus = new Map<string, Gpu>();
  for (const path of [dataPath('gpus.json'), ...(files.gpus ?? [])]) {
    for (const row of parseAs(gpuFileSchema, readJson(path), path).gpus) gpus.set(row.id, gpuFromRow(row));
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

export const readCalibration = (path: string): Calibration => parseAs(calibrationSchema, readJson(path), path);

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
  return parseAs(modelFileSchema, value, file).models.map(modelFromRow);
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

export function parseAs<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SchedulerError('bad_input', `${what}: ${z.prettifyError(parsed.error)}`);
}

/** By id, or by what a person or a driver calls it (`gh200`, `NVIDIA A100-SXM4-80GB`) with the memory in MiB where known. */
export function findGpu(catalogue: HardwareCatalogue, name: string, memoryMib?: number): Gpu {
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
export function findModel(catalogue: HardwareCatalogue, name: string): Model {
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

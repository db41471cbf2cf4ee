import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { findGpuClass } from '../../shared/hardware/gpu-classes.ts';
import gpuTable from '../../shared/hardware/gpus.json' with { type: 'json' };
import { isGpuSlice } from '../../shared/slurm/gpu-gres.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { nearestNames } from '../../shared/text/nearest-name.ts';
import { SchedulerError } from '../errors.ts';
import { type Calibration, calibrationSchema } from './calibration.ts';
import { type GpuType, gpuFileSchema, gpuFromRow } from './gpu.ts';
import { isHuggingFaceConfig, modelFromConfig } from './huggingface-config.ts';
import { type Model, modelFileSchema, modelFromRow } from './model.ts';

/**
 * Largest relative difference between the memory in a name and in the data sheet, because drivers and vendors round
 * differently.
 */
const MEMORY_TOLERANCE = 0.08;
/**
 * If a device's memory differs by more than this share from every GPU of its class, the device is a slice of a GPU, or
 * a type that the catalogue lacks.
 */
const MEMORY_FAR = 0.3;
const GIB = 2 ** 30;

/**
 * Chooses the GPU of a class that a name means. The memory decides first (`A100-80`, `A100-SXM4-80GB`, or `memoryMib`),
 * then the form (SXM, PCIe, NVL, HGX). If the name contains neither, the first GPU of the class is chosen. Undefined if
 * `memoryMib` is far from all of them.
 */
function gpuVariant(variants: readonly GpuType[], name: string, memoryMib?: number): GpuType | undefined {
  const wanted = memoryMib === undefined ? memoryOf(name) : memoryMib * 2 ** 20;
  const form = formOf(name);
  const share = (gpu: GpuType): number => (wanted === undefined ? 0 : Math.abs(gpu.memoryBytes / wanted - 1));
  const fits = (gpu: GpuType): boolean => share(gpu) <= MEMORY_TOLERANCE;
  // If the number in the name fits no variant, it is ignored: in `GH200 480GB` it is the processor's memory.
  const tells = memoryMib !== undefined || variants.some(fits);
  const distance = (gpu: GpuType): number => (!tells || fits(gpu) ? 0 : share(gpu));
  const differs = (gpu: GpuType): number => (form === undefined || formOf(gpu.id) === form ? 0 : 1);
  const near = memoryMib === undefined ? variants : variants.filter((gpu) => share(gpu) <= MEMORY_FAR);
  return near.reduce<GpuType | undefined>((best, gpu) => {
    if (best === undefined) return gpu;
    const closer = distance(gpu) - distance(best) || differs(gpu) - differs(best);
    return closer < 0 ? gpu : best;
  }, undefined);
}

/**
 * Memory in bytes, from the number after the class (`A100-80`, `80GB`, `80G`). The number of the class itself, such as
 * 100 in `A100`, directly follows a letter and is not matched.
 */
function memoryOf(name: string): number | undefined {
  const found = /(?:^|[^a-z0-9])(\d{2,3})(?:\s?gi?b?)?(?=$|[^a-z0-9])/i.exec(name);
  return found === null ? undefined : Number(found[1]) * GIB;
}

function formOf(name: string): string | undefined {
  return /(sxm|pcie|nvl|hgx)\d*(?=$|[^a-z0-9])/i.exec(name)?.[1]?.toLowerCase();
}

/** All GPUs and models by name, and the calibration: how close the GPUs come to their data sheets. */
export interface HardwareCatalogue {
  gpus: GpuType[];
  models: Model[];
  calibration: Calibration;
}

interface CatalogueFiles {
  gpus?: readonly string[];
  /** Files of models, or `config.json` files of Hugging Face; `NAME=path/config.json` sets the served name. */
  models?: readonly string[];
  calibration?: string;
}

/** `data/model-configs.json`: facts from public `config.json` files, with the statements of their publishers. */
const publicConfigsSchema = z.object({
  models: z.array(z.object({ id: z.string().min(1).max(256), config: z.record(z.string(), z.unknown()) })).max(1000),
});
export const PUBLIC_SOURCE = 'public config.json';

/**
 * Directories of the built-in tables. They are read at run time so that an operator can edit them. The bundle in dist/
 * has copies next to it.
 */
const DATA = [new URL('../data/', import.meta.url), new URL('./otela-plan-data/', import.meta.url)];

export function dataPath(name: string): string {
  const [source, bundled] = DATA.map((folder) => fileURLToPath(new URL(name, folder)));
  return source !== undefined && existsSync(source) ? source : (bundled ?? name);
}

/**
 * Loads the built-in tables and then the user's files. A row of a user's file replaces the built-in row of the same
 * name.
 */
export function loadCatalogue(files: CatalogueFiles = {}): HardwareCatalogue {
  const gpus = new Map<string, GpuType>();
  for (const row of parseAs(gpuFileSchema, gpuTable, 'shared/hardware/gpus.json').gpus)
    gpus.set(row.id, gpuFromRow(row));
  for (const path of files.gpus ?? []) {
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
    readTextFile(file).replace(PYTHON_NUMBERS, (_match, quoted?: string) => quoted ?? 'null'),
    file,
  );
  if (isHuggingFaceConfig(value))
    return [modelFromConfig(withQuantization(value, file), name ?? basename(dirname(file)))];
  const configs = publicConfigsSchema.safeParse(value);
  if (configs.success)
    return configs.data.models.map(({ id, config }) => ({ ...modelFromConfig(config, id), source: PUBLIC_SOURCE }));
  return parseAs(modelFileSchema, value, file).models.map(modelFromRow);
}

/** Numbers that Python writes and JSON lacks: the published `config.json` of Nemotron 3 contains `Infinity`. */
const PYTHON_NUMBERS = /("(?:[^"\\]|\\.)*")|-?\bInfinity\b|\bNaN\b/g;

/** Older exports of modelopt keep the quantization in a file next to `config.json`. */
function withQuantization(config: object, file: string): object {
  const beside = join(dirname(file), 'hf_quant_config.json');
  if ('quantization_config' in config || !existsSync(beside)) return config;
  const quantization = readJson(beside);
  return typeof quantization === 'object' && quantization !== null ? { ...config, ...quantization } : config;
}

export function readJson(path: string): unknown {
  return parseJson(readTextFile(path), path);
}

/** @throws SchedulerError `bad_input` */
export function readTextFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot read ${path}: ${errorText(cause)}`, { cause });
  }
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new SchedulerError('bad_input', `${path} is not JSON: ${errorText(cause)}`, { cause });
  }
}

export function parseAs<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SchedulerError('bad_input', `${what}: ${z.prettifyError(parsed.error)}`);
}

/**
 * Finds a GPU by id, or by the name that a person or a driver uses (`gh200`, `NVIDIA A100-SXM4-80GB`), with the memory
 * in MiB if known.
 */
export function findGpu(catalogue: HardwareCatalogue, name: string, memoryMib?: number): GpuType {
  const exact = catalogue.gpus.find(({ id }) => id.toLowerCase() === name.toLowerCase());
  if (exact) return exact;
  // A slice of a GPU has a part of its memory, bandwidth and units, so no row of the table describes it.
  const row = isGpuSlice(name) ? undefined : findGpuClass(name);
  const same = row === undefined ? [] : catalogue.gpus.filter((gpu) => gpu.class === row.name);
  const variant = gpuVariant(same, name, memoryMib);
  if (variant !== undefined) return variant;
  const names = catalogue.gpus.map(({ id }) => id);
  throw new SchedulerError(
    'unknown_gpu',
    `there is no GPU ${JSON.stringify(name.slice(0, 64))}; nearest: ${nearestNames(name, names).join(', ')} (otela-plan catalogue lists all; --gpus FILE adds one)`,
  );
}

/** Finds a model by id, or by the part after the slash if only one model has it. */
export function findModel(catalogue: HardwareCatalogue, name: string): Model {
  const wanted = name.toLowerCase();
  const exact = catalogue.models.find(({ id }) => id.toLowerCase() === wanted);
  if (exact) return exact;
  const tails = catalogue.models.filter(({ id }) => id.toLowerCase().split('/').at(-1) === wanted);
  if (tails.length === 1 && tails[0]) return tails[0];
  const names = catalogue.models.map(({ id }) => id);
  throw new SchedulerError(
    'unknown_model',
    `there is no model ${JSON.stringify(name.slice(0, 256))}; nearest: ${nearestNames(name, names).join(', ')} (otela-plan catalogue lists all; --models config.json adds one)`,
  );
}

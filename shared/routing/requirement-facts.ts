/** Translates a node's published record into the values that requirements compare. */
import { GPU_CLASSES } from '../hardware/gpu-classes.ts';
import type { Gpu, RegistryEntry, ServedModel } from '../lattice/node-record.ts';

/** Name of a label that the provider sets. */
const BUDGET_LABEL = 'reasoning-budget';

type Facts = Partial<Record<string, readonly (string | number)[]>>;

/** Facts about the machine. A fact that is not published has no key. */
export function nodeFacts(entry: RegistryEntry, now: number): Facts {
  const { gpus } = entry.hardware;
  const left = timeLeftMs(entry, now);
  return {
    gpu: gpus.map((gpu) => gpu.class),
    vram: gpus.map(nominalGib),
    tier: [entry.tier],
    ...(entry.region === undefined ? {} : { region: [entry.region.toLowerCase()] }),
    ...(left === undefined ? {} : { time_left: [left] }),
    ...(Object.hasOwn(entry.labels, BUDGET_LABEL) && {
      reasoning_budget: [entry.labels[BUDGET_LABEL]?.toLowerCase() ?? ''],
    }),
  };
}

/** Facts about one served model. */
export function modelFacts(model: ServedModel): Facts {
  const bits = model.quantization === undefined ? undefined : quantizationBits(model.quantization);
  return {
    ...(bits === undefined ? {} : { quantization: [bits] }),
    ...(model.quantization === undefined ? {} : { precision: [precisionName(model.quantization)] }),
    ...(model.context_length === undefined ? {} : { context: [model.context_length] }),
    ...(model.engine === undefined ? {} : { engine: [engineName(model.engine)] }),
  };
}

/**
 * Share of the memory that drivers reserve at most. An "80 GB" H100 reports 79.6 GiB and must still satisfy `vram>=80`.
 */
const RESERVED = 0.06;

function nominalGib(gpu: Gpu): number {
  const gib = gpu.vram_mib / 1024;
  const sizes = GPU_CLASSES.find(({ name }) => name === gpu.class)?.memoryGib ?? [];
  return sizes.find((size) => gib <= size && gib >= size * (1 - RESERVED)) ?? gib;
}

/**
 * Milliseconds until the end of the node's job. A stable node without a job has no end, so the result is infinite.
 * Undefined for a volatile node if the end is unknown.
 */
function timeLeftMs({ job, tier }: RegistryEntry, now: number): number | undefined {
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
  if (job?.ends_at !== undefined) return Date.parse(job.ends_at) - now;
  return job === undefined && tier === 'stable' ? Number.POSITIVE_INFINITY : undefined;
}

/** The engine's name without its version: `vLLM 0.21.0` becomes `vllm`. */
function engineName(engine: string): string {
  return engine.toLowerCase().split(/[\s/:@]/, 1)[0] ?? '';
}

/** One name for each format, in lower case: `bfloat16` becomes `bf16`, and `Q4_K_M` becomes `q4_k_m`. */
export function precisionName(name: string): string {
  const text = name.trim().toLowerCase();
  return SYNONYMS.get(text.replace(/^torch\./, '')) ?? text;
}

const SYNONYMS: ReadonlyMap<string, string> = new Map([
  ['bfloat16', 'bf16'],
  ['float16', 'fp16'],
  ['half', 'fp16'],
  ['f16', 'fp16'],
  ['float32', 'fp32'],
  ['f32', 'fp32'],
]);

/**
 * Bits per weight by the name of the format, for example `awq` 4, `bf16` 16, `Q5_K_M` 5. Undefined if the name does not
 * contain it.
 */
export function quantizationBits(name: string): number | undefined {
  const text = name.toLowerCase().replace(/[\s-]/g, '_');
  const named = FORMATS.find(([pattern]) => pattern.test(text));
  if (named !== undefined) return named[1];
  const bits = /(?:^(?:w|q|iq|u?int|bf|b?float)|(?:^|_)(?:int|nf|fp|mxfp|nvfp))_?(\d{1,2})(?!\d)/.exec(text)?.[1];
  return bits === undefined ? undefined : Number(bits);
}

/** Bits of the formats for which `quantizationBits` cannot read them from a number in the name. */
const FORMATS: ReadonlyArray<[RegExp, number]> = [
  [/(^|_)(awq|gptq|marlin|nf4|bitsandbytes_4bit)(_|$)/, 4],
  [/^(half|none_16)$/, 16],
  [/^(f16)$/, 16],
  [/^(f32)$/, 32],
];

/** What a node publishes, as the values that requirements compare. */
import { GPU_CLASSES } from '../hardware/classes.ts';
import type { Gpu, RegistryEntry, ServedModel } from '../lattice/node.ts';

/** A label that the provider gives. */
const BUDGET_LABEL = 'reasoning-budget';

type Facts = Partial<Record<string, readonly (string | number)[]>>;

/** Facts of the machine; a key that is absent is not published. */
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

/** Facts of one of its models. */
export function modelFacts(model: ServedModel): Facts {
  const bits = model.quantization === undefined ? undefined : quantizationBits(model.quantization);
  return {
    ...(bits === undefined ? {} : { quantization: [bits] }),
    ...(model.context_length === undefined ? {} : { context: [model.context_length] }),
    ...(model.engine === undefined ? {} : { engine: [engineName(model.engine)] }),
  };
}

/** A driver reserves some: an "80 GB" H100 reports 79.6 GiB and is meant by `vram>=80`. */
const RESERVED = 0.06;

function nominalGib(gpu: Gpu): number {
  const gib = gpu.vram_mib / 1024;
  const sizes = GPU_CLASSES.find(({ name }) => name === gpu.class)?.memoryGib ?? [];
  return sizes.find((size) => gib <= size && gib >= size * (1 - RESERVED)) ?? gib;
}

/** A stable node outside any job has no end; of a volatile one without an end nothing is known. */
function timeLeftMs({ job, tier }: RegistryEntry, now: number): number | undefined {
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
  if (job?.ends_at !== undefined) return Date.parse(job.ends_at) - now;
  return job === undefined && tier === 'stable' ? Number.POSITIVE_INFINITY : undefined;
}

/** `vLLM 0.21.0` is `vllm`. */
function engineName(engine: string): string {
  return engine.toLowerCase().split(/[\s/:@]/, 1)[0] ?? '';
}

/** Bits of a weight by the name of its format, e.g. `awq` 4, `bf16` 16, `Q5_K_M` 5; undefined where the name does not tell. */
export function quantizationBits(name: string): number | undefined {
  const text = name.toLowerCase().replace(/[\s-]/g, '_');
  const named = FORMATS.find(([pattern]) => pattern.test(text));
  if (named !== undefined) return named[1];
  const bits = /^(?:w|q|iq|int|uint|nf|fp|mxfp|nvfp|bf|float|bfloat)_?(\d{1,2})(?!\d)/.exec(text)?.[1];
  return bits === undefined ? undefined : Number(bits);
}

/** Names without their number, or whose first number is no width. */
const FORMATS: ReadonlyArray<[RegExp, number]> = [
  [/(^|_)(awq|gptq|marlin|nf4|bitsandbytes_4bit)(_|$)/, 4],
  [/^(half|none_16)$/, 16],
  [/^(f16)$/, 16],
  [/^(f32)$/, 32],
];

const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `30m`, `90s`, `1h30m`; milliseconds. */
export function durationMs(text: string): number | undefined {
  const parts = [...text.toLowerCase().matchAll(/(\d{1,9})([smhd])/g)];
  if (parts.length === 0 || parts.map(([whole]) => whole).join('') !== text.toLowerCase()) return undefined;
  return parts.reduce((sum, [, count, unit = '']) => sum + Number(count) * (UNIT_MS[unit] ?? 0), 0);
}

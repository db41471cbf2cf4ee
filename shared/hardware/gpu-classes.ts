/**
 * GPU classes, from `gpus.json`. A class is one short name for one kind of silicon, for which drivers, clouds and people use different
 * names. Memory is nominal (GiB per device, as in data sheets); the actual size comes from the driver.
 */

import table from './gpus.json' with { type: 'json' };

interface GpuClass {
  /** The name as in `x-otela-require: gpu=GH200`. */
  name: string;
  vendor: 'nvidia' | 'amd' | 'intel';
  /** Memory sizes that are sold. */
  memoryGib: readonly number[];
  /**
   * Words that identify the class in a driver's product name. They are compared without regard to case, blanks and
   * dashes.
   */
  aliases: readonly string[];
}

/**
 * A class with a longer name comes before a class with a name that it contains: `GH200 480GB` is not an H200, `RTX 6000
 * Ada` is not an RTX 6000, `L40S` is not an L40. AMD: one entry of the driver is one device. An MI250X card has two
 * dies of 64 GiB, which engines see as two devices.
 */
export const GPU_CLASSES: readonly GpuClass[] = table.classes as readonly GpuClass[];

/** Maximum length of a class name in a registry entry. */
const CLASS_MAX_CHARS = 32;

/**
 * The class of a device by its driver's product name, for example `NVIDIA A100-SXM4-80GB` → `A100`. A name that is not
 * in the table is kept, shortened.
 */
export function gpuClass(productName: string): string {
  return findGpuClass(productName)?.name ?? unknownClass(productName);
}

/** The table's row for a product name, or for a name that a person wrote (`gh200`, `rtx-3090`, `A100-80GB`). */
export function findGpuClass(name: string): GpuClass | undefined {
  const words = wordsOf(name);
  const joined = words.join('');
  return GPU_CLASSES.find(
    (row) => row.name === joined || row.aliases.some((alias) => containsWords(words, wordsOf(alias))),
  );
}

/**
 * Splits a name into words. `RTX3090`, `nvidia_rtx3090` and `RTX 3090`, or `A100-SXM4-80GB` and `A100 SXM4 80GB`, have
 * the same words.
 */
function wordsOf(name: string): string[] {
  return name
    .toUpperCase()
    .replaceAll('_', ' ')
    .replace(/\b(RTX|PRO|MAX) ?(?=[A-Z]?\d)/g, '$1 ')
    .replace(/(\d) ?TI\b/g, '$1 TI')
    .split(/[^A-Z0-9]+/)
    .filter((word) => word !== '');
}

function containsWords(words: readonly string[], wanted: readonly string[]): boolean {
  return words.some((_, at) => wanted.every((word, i) => words[at + i] === word));
}

function unknownClass(productName: string): string {
  const words = wordsOf(productName).filter(
    (word) => !/^(NVIDIA|AMD|INTEL|TESLA|QUADRO|GEFORCE|RADEON|INSTINCT|\d+GI?B)$/.test(word),
  );
  return words.join('').slice(0, CLASS_MAX_CHARS) || 'UNKNOWN';
}

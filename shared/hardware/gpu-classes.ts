/**
 * GPU classes. A class is one short name for one kind of silicon, for which drivers, clouds and people use different
 * names. Memory is nominal (GiB per device, as in data sheets); the actual size comes from the driver.
 */

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
export const GPU_CLASSES: readonly GpuClass[] = [
  { name: 'GB300', vendor: 'nvidia', memoryGib: [288], aliases: ['GB300'] },
  { name: 'GB200', vendor: 'nvidia', memoryGib: [192], aliases: ['GB200'] },
  { name: 'GH200', vendor: 'nvidia', memoryGib: [96, 144], aliases: ['GH200'] },
  { name: 'GB10', vendor: 'nvidia', memoryGib: [128], aliases: ['GB10'] },
  { name: 'B300', vendor: 'nvidia', memoryGib: [288], aliases: ['B300'] },
  { name: 'B200', vendor: 'nvidia', memoryGib: [192], aliases: ['B200'] },
  { name: 'H200', vendor: 'nvidia', memoryGib: [141], aliases: ['H200'] },
  { name: 'H100', vendor: 'nvidia', memoryGib: [80, 64, 94, 96], aliases: ['H100'] },
  { name: 'H800', vendor: 'nvidia', memoryGib: [80], aliases: ['H800'] },
  { name: 'H20', vendor: 'nvidia', memoryGib: [96, 141], aliases: ['H20'] },
  { name: 'A100', vendor: 'nvidia', memoryGib: [40, 64, 80], aliases: ['A100'] },
  { name: 'A800', vendor: 'nvidia', memoryGib: [40, 80], aliases: ['A800'] },
  { name: 'A40', vendor: 'nvidia', memoryGib: [48], aliases: ['A40'] },
  { name: 'A30', vendor: 'nvidia', memoryGib: [24], aliases: ['A30'] },
  { name: 'A16', vendor: 'nvidia', memoryGib: [16], aliases: ['A16'] },
  { name: 'A10G', vendor: 'nvidia', memoryGib: [24], aliases: ['A10G'] },
  { name: 'A10', vendor: 'nvidia', memoryGib: [24], aliases: ['A10'] },
  { name: 'A2', vendor: 'nvidia', memoryGib: [16], aliases: ['A2'] },
  { name: 'L40S', vendor: 'nvidia', memoryGib: [48], aliases: ['L40S'] },
  { name: 'L40', vendor: 'nvidia', memoryGib: [48], aliases: ['L40'] },
  { name: 'L20', vendor: 'nvidia', memoryGib: [48], aliases: ['L20'] },
  { name: 'L4', vendor: 'nvidia', memoryGib: [24], aliases: ['L4'] },
  { name: 'T4', vendor: 'nvidia', memoryGib: [16], aliases: ['T4'] },
  { name: 'V100', vendor: 'nvidia', memoryGib: [16, 32], aliases: ['V100', 'V100S'] },
  { name: 'P100', vendor: 'nvidia', memoryGib: [16, 12], aliases: ['P100'] },
  { name: 'RTXPRO6000', vendor: 'nvidia', memoryGib: [96], aliases: ['RTX PRO 6000'] },
  { name: 'RTX6000ADA', vendor: 'nvidia', memoryGib: [48], aliases: ['RTX 6000 Ada'] },
  { name: 'RTXA6000', vendor: 'nvidia', memoryGib: [48], aliases: ['RTX A6000', 'A6000'] },
  { name: 'RTXA5000', vendor: 'nvidia', memoryGib: [24], aliases: ['RTX A5000', 'A5000'] },
  { name: 'RTX5090', vendor: 'nvidia', memoryGib: [32], aliases: ['RTX 5090', '5090'] },
  { name: 'RTX4090', vendor: 'nvidia', memoryGib: [24], aliases: ['RTX 4090', '4090'] },
  { name: 'RTX3090', vendor: 'nvidia', memoryGib: [24], aliases: ['RTX 3090', '3090'] },
  { name: 'RTX2080TI', vendor: 'nvidia', memoryGib: [11], aliases: ['RTX 2080 Ti', '2080 Ti'] },
  { name: 'MI355X', vendor: 'amd', memoryGib: [288], aliases: ['MI355X'] },
  { name: 'MI350X', vendor: 'amd', memoryGib: [288], aliases: ['MI350X'] },
  { name: 'MI325X', vendor: 'amd', memoryGib: [256], aliases: ['MI325X'] },
  { name: 'MI300X', vendor: 'amd', memoryGib: [192], aliases: ['MI300X'] },
  { name: 'MI300A', vendor: 'amd', memoryGib: [128], aliases: ['MI300A'] },
  // rocm-smi on LUMI and Frontier calls an MI250X "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2".
  { name: 'MI250X', vendor: 'amd', memoryGib: [64], aliases: ['MI250X', 'MI200 MCM OAM LC'] },
  { name: 'MI250', vendor: 'amd', memoryGib: [64], aliases: ['MI250', 'MI250 MCM OAM AC'] },
  { name: 'MI210', vendor: 'amd', memoryGib: [64], aliases: ['MI210'] },
  { name: 'MI100', vendor: 'amd', memoryGib: [32], aliases: ['MI100'] },
  { name: 'MAX1550', vendor: 'intel', memoryGib: [128], aliases: ['Data Center GPU Max 1550', 'MAX1550'] },
];

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

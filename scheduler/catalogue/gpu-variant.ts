import type { Gpu } from './gpu.ts';

/** How far the memory that a name tells may be from the data sheet's: drivers and vendors round differently. */
const MEMORY_TOLERANCE = 0.08;
/** A device whose memory is this far from every GPU of its class is a part of one, or another GPU. */
const MEMORY_FAR = 0.3;
const GIB = 2 ** 30;

/**
 * Which of a class's GPUs a name means: the one with the memory that is asked for (`A100-80`, `A100-SXM4-80GB`, or `memoryMib`), then the one of
 * that form (SXM, PCIe, NVL, HGX); the first where the name tells neither. None where `memoryMib` is far from all.
 */
export function gpuVariant(variants: readonly Gpu[], name: string, memoryMib?: number): Gpu | undefined {
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

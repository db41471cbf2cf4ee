/** How weights or keys and values are stored. */
export const PRECISIONS = ['bf16', 'fp8', 'int8', 'int4'] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Bytes per element. int4 carries a 16-bit scale and a 4-bit zero point for each 128 weights, as AWQ and GPTQ store them. */
export function bytesPerElement(precision: Precision): number {
  switch (precision) {
    case 'bf16':
      return 2;
    case 'fp8':
    case 'int8':
      return 1;
    case 'int4':
      return 0.5 + (2 + 0.5) / 128;
  }
}

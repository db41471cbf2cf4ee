/** Precisions in which weights, or keys and values, are stored. */
export const PRECISIONS = ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Precisions of keys and values: no engine stores them in 4 bits by default. */
export const KV_PRECISIONS = ['bf16', 'fp8', 'int8'] as const satisfies readonly Precision[];

/**
 * Bytes per element, including scales. int4: a 16-bit scale and a 4-bit zero point for each 128 weights (AWQ, GPTQ);
 * mxfp4: an 8-bit scale for each 32 weights (OCP Microscaling 1.0); nvfp4: an 8-bit scale for each 16 weights.
 */
export function bytesPerElement(precision: Precision): number {
  switch (precision) {
    case 'bf16':
      return 2;
    case 'fp8':
    case 'int8':
      return 1;
    case 'int4':
      return 0.5 + (2 + 0.5) / 128;
    case 'mxfp4':
      return 0.5 + 1 / 32;
    case 'nvfp4':
      return 0.5 + 1 / 16;
  }
}

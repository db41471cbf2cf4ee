/** A kind of GPU of the paper's site. */
export interface SiteGpu {
  name: string;
  /** Wall seconds of one claim with text, one at a time. */
  secondsPerInference: number;
  /** GPUs of this kind at the site. */
  count: number;
}

/**
 * The site of "Scaling Up Throughput-oriented LLM Inference … with Pervasive Context Management" (arXiv 2509.13201,
 * §5). Counts are the paper's. The speed of the A10 is derived from pv0 (40,900 s for 145,449 claims with text). The
 * speed of the TITAN X Pascal is derived from the pool rate of ten of each (62.5 inferences/s over all 150,000). The
 * other speeds are estimates, because the paper prints none.
 */
export const A10: SiteGpu = { name: 'A10', secondsPerInference: 0.2812, count: 78 };
export const TITAN_X_PASCAL: SiteGpu = { name: 'TITAN X (Pascal)', secondsPerInference: 0.399, count: 69 };

export const SITE: readonly SiteGpu[] = [
  { name: 'Quadro RTX 6000', secondsPerInference: 0.258, count: 106 },
  A10,
  TITAN_X_PASCAL,
  { name: 'GTX 1080 Ti', secondsPerInference: 0.397, count: 63 },
  { name: 'RTX 6000 Ada', secondsPerInference: 0.175, count: 36 },
  { name: 'GTX TITAN X', secondsPerInference: 0.567, count: 34 },
  { name: 'A40', secondsPerInference: 0.242, count: 26 },
  { name: 'H100', secondsPerInference: 0.093, count: 15 },
];

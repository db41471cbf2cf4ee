/** Returns random numbers, uniform in [0, 1). The same seed gives the same numbers on every machine. */
export type Random = () => number;

/**
 * The generator sfc32 (Doty-Humphrey, PractRand) with 128 bits of state, which passes BigCrush. A splitmix of one
 * number seeds it.
 */
export function seededRandom(seed: number): Random {
  let x = seed | 0;
  const next = () => {
    x = (x + 0x9e3779b9) | 0;
    let t = x ^ (x >>> 16);
    t = Math.imul(t, 0x21f0aaad);
    t ^= t >>> 15;
    t = Math.imul(t, 0x735a2d97);
    return t ^ (t >>> 15);
  };
  let [a, b, c, d] = [next(), next(), next(), 1];
  const random = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return (t >>> 0) / 4294967296;
  };
  for (let i = 0; i < 12; i++) random();
  return random;
}

export function exponential(random: Random, mean: number): number {
  return -Math.log(1 - random()) * mean;
}

/**
 * Draws from the standard normal distribution by Box-Muller. The method's second value is dropped, so that every call
 * uses two random numbers.
 */
export function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/**
 * Draws from the gamma distribution with mean shape * scale, by Marsaglia and Tsang (2000) with their extension to
 * `shape` below 1.
 */
export function gamma(random: Random, shape: number, scale: number): number {
  if (shape < 1) return gamma(random, shape + 1, scale) * (1 - random()) ** (1 / shape);
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = normal(random);
    const v = (1 + c * x) ** 3;
    if (v > 0 && Math.log(1 - random()) < 0.5 * x * x + d * (1 - v + Math.log(v))) return d * v * scale;
  }
}

/** Random numbers from a seed (sfc32, after Chris Doty-Humphrey's PractRand). */
export type Rng = () => number;

export function seeded(seed: number): Rng {
  let a = seed | 0;
  let b = 0x9e3779b9;
  let c = 0x243f6a88;
  let d = 1;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + t;
    c |= 0;
    return (t >>> 0) / 4294967296;
  };
  for (let i = 0; i < 16; i++) next();
  return next;
}

/** A separate stream, so that the draws of one part do not shift those of another. */
export function fork(rng: Rng): Rng {
  return seeded(Math.floor(rng() * 4294967296));
}

export function exponential(rng: Rng, mean: number): number {
  return -Math.log(1 - rng()) * mean;
}

export function pick<T>(items: readonly T[], rng: Rng): T {
  const item = items[Math.floor(rng() * items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
}

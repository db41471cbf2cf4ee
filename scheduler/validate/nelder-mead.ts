/**
 * Minimizes `f` by Nelder-Mead (1965), beginning at `start`. All coordinates must be positive, and are changed by
 * factors. Deterministic.
 */
export function minimise(f: (x: readonly number[]) => number, start: readonly number[], steps = 400): number[] {
  const value = (logs: readonly number[]) => {
    const y = f(logs.map(Math.exp));
    return Number.isFinite(y) ? y : Number.MAX_VALUE;
  };
  const origin = start.map(Math.log);
  const simplex = [origin, ...origin.map((_, i) => origin.map((x, j) => (i === j ? x + 0.15 : x)))].map((x) => ({
    x,
    y: value(x),
  }));
  for (let step = 0; step < steps; step++) {
    simplex.sort((a, b) => a.y - b.y);
    const [best, worst, second] = [simplex[0], simplex.at(-1), simplex.at(-2)];
    if (!best || !worst || !second || worst.y - best.y < 1e-10) break;
    const centre = origin.map(
      (_, i) => simplex.slice(0, -1).reduce((sum, { x }) => sum + (x[i] ?? 0), 0) / origin.length,
    );
    const at = (t: number) => {
      const x = centre.map((c, i) => c + t * ((worst.x[i] ?? 0) - c));
      return { x, y: value(x) };
    };
    const reflected = at(-1);
    if (reflected.y < best.y) {
      const expanded = at(-2);
      simplex[simplex.length - 1] = expanded.y < reflected.y ? expanded : reflected;
    } else if (reflected.y < second.y) {
      simplex[simplex.length - 1] = reflected;
    } else {
      const contracted = at(reflected.y < worst.y ? -0.5 : 0.5);
      if (contracted.y < Math.min(reflected.y, worst.y)) simplex[simplex.length - 1] = contracted;
      else {
        for (let i = 1; i < simplex.length; i++) {
          const x = (simplex[i]?.x ?? origin).map((v, j) => ((best.x[j] ?? 0) + v) / 2);
          simplex[i] = { x, y: value(x) };
        }
      }
    }
  }
  simplex.sort((a, b) => a.y - b.y);
  return (simplex[0]?.x ?? origin).map(Math.exp);
}

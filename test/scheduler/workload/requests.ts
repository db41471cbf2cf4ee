import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';
import type { KindLengths } from '../../../scheduler/workload/request-kinds.ts';

/** Requests around three centers, in the given shares. */
export function requestsOf(seed: number, shares: readonly [number, number, number], count = 3000): KindLengths[] {
  const random = seededRandom(seed);
  const centres = [
    [100, 30],
    [2000, 20],
    [300, 500],
  ] as const;
  return Array.from({ length: count }, () => {
    const u = random();
    const [input, output] = centres[u < shares[0] ? 0 : u < shares[0] + shares[1] ? 1 : 2] ?? [1, 1];
    return {
      input: Math.max(1, Math.round(input * Math.exp(0.25 * normal(random)))),
      output: Math.max(1, Math.round(output * Math.exp(0.25 * normal(random)))),
    };
  });
}

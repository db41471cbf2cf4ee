import { describe, expect, it } from 'vitest';
import { fitKinds, type KindLengths, kindClassifier } from '../../../scheduler/workload/request-kinds.ts';
import { requestsOf } from './requests.ts';

describe('kinds of requests', () => {
  it('are as many as there are groups, with their lengths and shares', () => {
    const kinds = fitKinds(requestsOf(1, [0.5, 0.3, 0.2]), { most: 8, seed: 1 });
    expect(kinds).toHaveLength(3);
    const long = kinds.find(({ output }) => output > 200);
    expect(long?.share).toBeCloseTo(0.2, 1);
    expect(long?.input).toBeGreaterThan(280);
    expect(long?.input).toBeLessThan(320);
    expect(new Set(kinds.map(({ name }) => name)).size).toBe(3);
  });

  it('keep their numbers from one fit to the next, whatever the mix and the seed', () => {
    const before = fitKinds(requestsOf(1, [0.5, 0.3, 0.2]), { most: 8, seed: 1 });
    const probes: KindLengths[] = [
      { input: 100, output: 30 },
      { input: 2000, output: 20 },
      { input: 300, output: 500 },
    ];
    for (let seed = 2; seed < 12; seed++) {
      const after = fitKinds(requestsOf(seed, [0.2, 0.2, 0.6]), { most: 8, seed, previous: before });
      expect(probes.map(kindClassifier(after))).toEqual(probes.map(kindClassifier(before)));
    }
  });

  it('stay when one of them vanishes for a while', () => {
    const before = fitKinds(requestsOf(1, [0.5, 0.3, 0.2]), { most: 8, seed: 1 });
    const without = fitKinds(requestsOf(3, [0.6, 0.4, 0]), { most: 8, seed: 1, previous: before });
    const probe = { input: 100, output: 30 };
    expect(kindClassifier(without)(probe)).toBe(kindClassifier(before)(probe));
  });

  it('of equal requests are one', () => {
    expect(fitKinds(new Array(50).fill({ input: 7, output: 7 }), { most: 4, seed: 1 })).toHaveLength(1);
  });

  it('cannot be found without requests', () => {
    expect(() => fitKinds([], { most: 4, seed: 1 })).toThrow('no requests');
  });
});

/** The papers' commands fail if a headline is missed, except for known misses with their reasons. */
import { describe, expect, it } from 'vitest';
import { type Cell, cellSchema } from '../../../research/papers/oserve/latency-cells.ts';
import { latencyClaims } from '../../../research/papers/oserve/latency-claims.ts';
import { POLICIES } from '../../../research/papers/oserve/policies.ts';
import { missesText, row, rowsText } from '../../../research/papers/rows.ts';

/** One run in which every other way to serve has `times` our latency. */
function cell(times: number): Cell {
  const results = POLICIES.map((name) => {
    const s = name.startsWith('ours') ? 1 : times;
    const figures = { mean: s, p90: s, tail: [s, s, s, s, s], ttftP99: s, tbtMean: s, tbtP99: s, requestsPerS: 1 };
    return [name, { ...figures, unanswered: 0, switches: 0, deployment: '' }];
  });
  const of = { model: 'm', gpus: 32, trace: 'azure', span: 1 };
  return cellSchema.parse({ ...of, name: 'n', requests: 1, results: Object.fromEntries(results) });
}
const rowsOf = (times: number, whole: boolean) => latencyClaims([cell(times)], whole).rows;

describe('the headline against other ways to serve', () => {
  it('fails where ours is worse than is known', () => {
    const failed = rowsOf(0.8, true).filter(({ holds }) => !holds);
    expect(failed.map(({ claim }) => claim)).toEqual(
      expect.arrayContaining(['P99 of static over ours, geometric mean', '32 GPUs: P99 of static over ours, largest']),
    );
  });

  it('says why where a miss is known', () => {
    const text = missesText(rowsOf(1.3, true));
    expect(text).toMatch(/misses: P99 of static over ours, geometric mean: 1.3 ×, paper 1.5. \w/);
    expect(text).not.toMatch(/of reload over ours, geometric mean/);
  });

  it('is not judged by a part of the runs', () => {
    expect(rowsOf(1, false).every(({ holds }) => holds)).toBe(true);
  });
});

describe('a row', () => {
  const miss = { band: [1.2, 1.5], reason: 'shapes are alike' } as const;
  it.each([
    [1.6, 'holds', true],
    [1.3, 'MISSES', true],
    [1.1, 'FAILS', false],
  ])('of %s × where 1.5 are claimed and 1.2 are known: %s', (ours, word, holds) => {
    const found = row('claim', '×', ours, { paper: 1.5, band: [1.5, 9], miss });
    expect(found.holds).toBe(holds);
    expect(rowsText([found])).toContain(word);
  });
});

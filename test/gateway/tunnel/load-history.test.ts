import { expect, test } from 'vitest';
import { LoadHistory } from '../../../gateway/tunnel/reported-load.ts';

const load = (at: number, running: number) => ({ at, running, waiting: 0 });

test('one load of each ten seconds is kept, the last one, for an hour', () => {
  const history = new LoadHistory();
  for (let at = 0; at < 7_200_000; at += 1_000) history.add(load(at, at / 1_000));
  const kept = history.list(7_199_000);
  expect(kept).toHaveLength(360);
  expect(kept.at(-1)).toEqual(load(7_199_000, 7_199));
  expect(kept[0]?.running).toBe(3_609);
});

test('what was said before a node fell silent for an hour is forgotten', () => {
  const history = new LoadHistory();
  history.add(load(0, 1));
  expect(history.list(3_599_999)).toHaveLength(1);
  expect(history.list(3_600_000)).toEqual([]);
});

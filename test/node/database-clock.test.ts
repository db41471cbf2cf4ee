import { expect, test } from 'vitest';
import { DatabaseClock } from '../../gateway/hosts/node/cluster/database-clock.ts';

const AT = 1_800_000_000_000;

test.each([
  ['equal', 0, 20, undefined],
  ['four seconds ahead', 4_000, 20, undefined],
  ['equal, and the statement takes a minute', 0, 60_000, undefined],
  ['ten minutes ahead', 600_000, 20, '600 s ahead of'],
  ['ten minutes behind, and the statement takes ten seconds', -600_000, 10_000, '590 s behind'],
])('a clock that is %s', (_, aheadMs, statementMs, told) => {
  const lines: string[] = [];
  const sentMs = AT + aheadMs;
  new DatabaseClock((line) => lines.push(line)).compare(AT, sentMs, sentMs + statementMs);
  expect(lines).toEqual(told === undefined ? [] : [`the clock of this machine is ${told} that of PostgreSQL`]);
});

test('a wrong clock is logged once, and again when it is right', () => {
  const lines: string[] = [];
  const clock = new DatabaseClock((line) => lines.push(line));
  for (const aheadMs of [0, 60_000, 61_000, 10, 0]) clock.compare(AT, AT + aheadMs, AT + aheadMs + 5);
  expect(lines).toEqual([
    'the clock of this machine is 60 s ahead of that of PostgreSQL',
    'the clock of this machine is again equal to that of PostgreSQL',
  ]);
});

/**
 * `npm run bench:factory -- [--seeds 5] [--svg FILE]`: simulates a batch of at most 20 jobs on what a busy day leaves
 * free. Prints how much of the free GPU time was used, and how much of that was wasted. Exit code 1 if a required
 * figure is missed.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { busyDay, busyDaySvg } from '../test/support/factory/simulator/busy-day.ts';

const [USED_LEAST, WASTED_MOST] = [0.9, 0.05];

const { values } = parseArgs({ options: { seeds: { type: 'string', default: '5' }, svg: { type: 'string' } } });
const percent = (share: number) => `${(share * 100).toFixed(1)} %`;
console.log('seed  free GPU-h  used     wasted   of it: loading  idle     lost     jobs  preempted');
let missed = 0;
for (let seed = 1; seed <= Number(values.seeds); seed++) {
  const day = await busyDay(seed);
  const [used, wasted] = [day.used / day.free, (day.loading + day.idle + day.lost) / day.used];
  if (used < USED_LEAST || wasted > WASTED_MOST) missed += 1;
  const cells = [
    String(seed).padEnd(6),
    day.free.toFixed(0).padEnd(12),
    percent(used).padEnd(9),
    percent(wasted).padEnd(9),
  ];
  const more = [
    percent(day.loading / day.used).padEnd(16),
    percent(day.idle / day.used).padEnd(9),
    percent(day.lost / day.used).padEnd(9),
    String(day.jobs).padEnd(6),
    day.preempted,
  ];
  console.log([...cells, ...more].join(''));
  if (seed === 1 && values.svg !== undefined) writeFileSync(values.svg, busyDaySvg(day));
}
console.log(
  `required: used >= ${percent(USED_LEAST)}, wasted <= ${percent(WASTED_MOST)}: ${missed === 0 ? 'holds' : `missed ${missed} times`}`,
);
process.exitCode = missed === 0 ? 0 : 1;

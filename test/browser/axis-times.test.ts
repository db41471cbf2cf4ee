import { expect, it } from 'vitest';
import { axisTimes } from '../../dashboard/ui/axis-times.ts';

const at = (iso: string) => new Date(iso).getTime() / 1000;

it('a time axis counts hours to 23, and names the day at its first label and where a day begins', () => {
  const times = [at('2026-03-04T22:30'), at('2026-03-04T23:30'), at('2026-03-05T00:30')];
  expect(axisTimes(times, 3_600)).toEqual(['22:30\nMar 4', '23:30', '00:30\nMar 5']);
});

it('has seconds if its steps are below a minute, and only days if they are days', () => {
  expect(axisTimes([at('2026-03-04T13:05:30')], 30)).toEqual(['13:05:30\nMar 4']);
  expect(axisTimes([at('2026-03-04T00:00'), at('2026-03-05T00:00')], 86_400)).toEqual(['Mar 4', 'Mar 5']);
});

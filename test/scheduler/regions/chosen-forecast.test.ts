import { expect, it } from 'vitest';
import { ChosenForecast } from '../../../scheduler/regions/live/chosen-forecast.ts';
import { CountForecast } from '../../../scheduler/regions/live/count-forecast.ts';

/** Mean relative error of forecasts one slot ahead over the last quarter of the slots. */
function errorOf(forecast: CountForecast, counts: readonly number[]): number {
  let [sum, seen] = [0, 0];
  counts.forEach((count, slot) => {
    if (slot >= 0.75 * counts.length) {
      sum += Math.abs(forecast.next() - count) / count;
      seen++;
    }
    forecast.observe(count);
  });
  return sum / seen;
}

it('follows a load that rises and falls better than smoothing does', () => {
  const counts = Array.from({ length: 320 }, (_, slot) => 200 + 100 * Math.sin((2 * Math.PI * slot) / 40));
  const [chosen, smooth] = [
    errorOf(new CountForecast(new ChosenForecast(45)), counts),
    errorOf(new CountForecast(), counts),
  ];
  expect(chosen).toBeLessThan(0.5 * smooth);
});

it('has no forecast before the first backtest, and counts that are no numbers do not end it', () => {
  const forecast = new ChosenForecast(45);
  expect(forecast.next()).toBeNaN();
  const bounded = new CountForecast(new ChosenForecast(45));
  for (let slot = 0; slot < 200; slot++) bounded.observe(slot % 5 === 0 ? Number.NaN : slot % 7 === 0 ? -3 : 100);
  expect(bounded.next()).toBeGreaterThan(69);
  expect(bounded.next()).toBeLessThan(301);
});

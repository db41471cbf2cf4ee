import { expect, it } from 'vitest';
import { DemandForecaster, slotsOf } from '../../../scheduler/follow/demand-forecaster.ts';
import { SlotCounts } from '../../../scheduler/follow/slot-counts.ts';

it('a season of 30-second slots takes part in the forecast once two days of it were seen', () => {
  const season = 2_880;
  const counted = new SlotCounts(30, slotsOf(season));
  counted.setKinds(['one']);
  const slots = 3 * season;
  for (let slot = 0; slot < slots; slot++) counted.set(slot, [10 + 8 * Math.sin((slot / season) * 2 * Math.PI)]);
  const history = counted.history(slots);
  expect(history.counts[0]).toHaveLength(slotsOf(season));
  const [found] = new DemandForecaster(season).expect(history, slots, 1, 5).methods;
  expect(found?.why).toMatch(/season of 2880/);
});

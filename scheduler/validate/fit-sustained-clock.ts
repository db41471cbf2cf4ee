import type { Calibration } from '../catalogue/calibration.ts';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { measuredDrains } from './measured-data.ts';
import { drain, isFitted } from './measured-workloads.ts';
import { minimise } from './nelder-mead.ts';
import { signed, table } from './text-table.ts';

/**
 * `otela-plan validate --fit`: fits two shares to four of the six measurements in `opentela-drain.csv`: the share of a
 * cool GPU's rate that remains under load, and the share of the host's work that asynchronous scheduling hides.
 */
export function sustainedText(catalogue: HardwareCatalogue): string {
  const measured = measuredDrains();
  const error = (one: (typeof measured)[number], calibration: Calibration) =>
    drain({ ...catalogue, calibration }, one).ours / one.seconds - 1;
  const calibrationOf = ([sustained = 1, hidden = 0]: readonly number[]): Calibration => {
    const { default: usual, host } = catalogue.calibration;
    const within = (share: number, least: number) => Math.min(1, Math.max(least, share));
    return {
      ...catalogue.calibration,
      default: { ...usual, sustained: within(sustained, 0.1) },
      host: { ...host, hidden: within(hidden, 0) },
    };
  };
  const squares = (values: readonly number[]) => {
    const calibration = calibrationOf(values);
    return measured.reduce((sum, one) => sum + (isFitted(one.model) ? error(one, calibration) ** 2 : 0), 0);
  };
  const calibration = calibrationOf(minimise(squares, [0.9, 0.4], 40));
  const rows = measured.map((one) => {
    const { model, gpu } = one;
    return [model, gpu, signed(error(one, calibration)), isFitted(model) ? 'yes' : 'no'];
  });
  const [found, shipped] = [calibration, catalogue.calibration];
  return (
    `least squares: sustained ${found.default.sustained.toFixed(3)} (shipped: ${shipped.default.sustained}), ` +
    `hidden ${found.host.hidden.toFixed(3)} (shipped: ${shipped.host.hidden})\n\n${table(['model', 'GPU', 'error', 'fitted'], rows)}`
  );
}

import type { Catalogue } from '../catalogue/catalogue.ts';
import { drain, isFitted } from './engine.ts';
import { minimise } from './fit.ts';
import { measuredDrains } from './measured.ts';
import { signed, table } from './table.ts';

/** `otela-plan validate --fit`: the share of their cool rate that GPUs keep under load, from four of the six drains. */
export function sustainedText(catalogue: Catalogue): string {
  const measured = measuredDrains();
  const errors = (sustained: number) => {
    const calibration = { ...catalogue.calibration, default: { ...catalogue.calibration.default, sustained } };
    return measured.map((one) => ({ ...one, error: drain({ ...catalogue, calibration }, one).ours / one.seconds - 1 }));
  };
  const squares = (sustained: number) =>
    errors(sustained).reduce((sum, { model, error }) => sum + (isFitted(model) ? error ** 2 : 0), 0);
  const [found = 1] = minimise(([sustained = 1]) => squares(Math.min(1, sustained)), [0.95], 20);
  const rows = errors(found).map(({ model, gpu, error }) => [
    model,
    gpu,
    signed(error),
    isFitted(model) ? 'yes' : 'no',
  ]);
  const shipped = catalogue.calibration.default.sustained;
  return `sustained, least squares: ${found.toFixed(3)} (shipped: ${shipped})\n\n${table(['model', 'GPU', 'error', 'fitted'], rows)}`;
}

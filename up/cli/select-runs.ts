/** Finds the runs that a command means. */
import { UsageError } from '../../shared/command-line/index.ts';
import type { Run, Runs } from '../state/runs.ts';

/**
 * @returns all runs if neither a model nor a host is given
 * @throws UsageError if something is given and no run fits
 */
export function selectRuns(runs: Runs, model: string | undefined, host: string | undefined): Run[] {
  const all = runs.list();
  const found = all.filter(
    (run) => (model === undefined || run.model === model) && (host === undefined || run.host === host),
  );
  if (found.length > 0 || (model === undefined && host === undefined)) return found;
  const names = all.map((run) => `${run.model} on ${run.host}`).join(', ');
  throw new UsageError(`there is no run of ${model ?? host}${names === '' ? '' : `; there are ${names}`}`);
}

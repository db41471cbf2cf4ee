/** Explains the end of a job that did not serve, by the last lines of its output. */
import type { Host } from '../host/host.ts';
import { type Run, runDirectory } from '../state/runs.ts';
import { UpError } from '../up-error.ts';

const LOG_LINES = 15;

/** @param state how it ended */
export async function jobFailure(host: Pick<Host, 'output'>, run: Run, job: string, state: string): Promise<UpError> {
  const file = `"$HOME"/${runDirectory(run)}/${job}.log`;
  const tail = (await host.output(`tail -n ${LOG_LINES} ${file} 2>/dev/null || true`).catch(() => '')).trim();
  const happened = `The job ${job} ended before the model answered (${state}).${tail === '' ? '' : ` Its last lines:\n${tail}`}`;
  if (state.startsWith('OUT_OF_ME') || /out of memory/i.test(tail))
    return new UpError(
      happened,
      'The model needs more memory: give --gpus 2, or --engine-argument=--max-model-len=8192.',
    );
  return new UpError(happened, 'Correct what the lines say, then run otela up again. otela logs shows all lines.');
}

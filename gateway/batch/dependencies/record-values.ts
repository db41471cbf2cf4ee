/** What a batch gives to batches that need its results. */
import { isTerminal } from '../../../shared/batch/batch-status.ts';
import type { BatchProgress, LineValue } from '../../../shared/batch/line-references.ts';
import type { BatchRecord } from '../batch-record.ts';
import { doneLines, lineValues } from './line-values.ts';

export function progressOf({ state: { status, counts }, ledger }: BatchRecord): BatchProgress {
  const ended = isTerminal(status);
  return { ended, done: ended ? new Uint8Array() : doneLines(ledger.chunks, counts.total) };
}

export function valuesOf(record: BatchRecord, lines: readonly number[]): LineValue[] {
  const { spec, state, ledger } = record;
  const [error] = state.errors;
  return lineValues(
    {
      batch: spec?.id ?? '',
      endpoint: spec?.endpoint ?? '/v1/chat/completions',
      name: spec?.metadata?.opentela_function ?? state.model ?? spec?.id ?? '',
      chunks: ledger.chunks,
      results: (chunk) => record.results(chunk),
      why: error?.message ?? `the batch is ${state.status}`,
    },
    lines,
  );
}

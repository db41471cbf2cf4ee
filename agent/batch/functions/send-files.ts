/** Sends the files that a call wrote to the gateway, before the result that names them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayRefusalError } from '../../../node/gateway-client.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { backoffMs } from '../../../shared/timing/backoff.ts';
import { answeredLine, failedLine, raisedLine, type StoredFile } from './function-results.ts';
import type { LeasedLines } from './leased-lines.ts';
import { type CallFile, type CollectedFile, type OutputFolder, OutputRefusedError } from './output-folder.ts';

/** A line with a result that names files. */
export interface AnsweredLine {
  line: number;
  model: string;
  /** JSON. */
  output: string | undefined;
  files: readonly CallFile[];
}

/** A file is sent again after a failure, for about a minute. Then other nodes try the line. */
const TRIES_MAX = 6;
const BACKOFF = { minMs: 1_000, maxMs: 30_000 };
/** The gateway would refuse the file of each node: it exceeds the quota of its owner, or the batch has too many files. */
const FINAL_CODES: ReadonlySet<string | undefined> = new Set([
  'request_too_large',
  'insufficient_quota',
  'invalid_request',
]);

/** Returns the result of the line. Never rejects. */
export async function sendFiles(
  folder: OutputFolder,
  leased: LeasedLines,
  { line, model, output, files }: AnsweredLine,
): Promise<LineResult> {
  const stored: StoredFile[] = [];
  try {
    for (const one of files) stored.push(await folder.collect(one, (file) => sendFile(leased, file, folder.signal)));
    return answeredLine(line, model, output, stored);
  } catch (error) {
    await folder.discard(files);
    if (error instanceof OutputRefusedError) return raisedLine(line, error.message);
    return failedLine(line, 'engine_failed', `a file of the call could not be stored: ${errorText(error)}`);
  }
}

/** @throws OutputRefusedError, Error */
async function sendFile(
  { lease, work }: LeasedLines,
  { content, ...file }: CollectedFile,
  stop: AbortSignal,
): Promise<StoredFile> {
  const signal = AbortSignal.any([work.signal, stop]);
  for (let failures = 0; ; failures++) {
    try {
      return { ...file, id: await work.gateway.sendFile(lease, file, content, signal) };
    } catch (error) {
      if (error instanceof GatewayRefusalError && FINAL_CODES.has(error.code))
        throw new OutputRefusedError(`the gateway refuses a file of the call: ${error.message}`);
      const isOver = error instanceof GatewayRefusalError && error.code === 'conflict';
      if (isOver || signal.aborted || failures + 1 >= TRIES_MAX) throw error;
      await sleep(backoffMs(failures, BACKOFF), undefined, { signal });
    }
  }
}

/** One call of a loaded function: its files, its inputs, and the results of its lines. */
import { GatewayRefusalError } from '../../../node/gateway-client.ts';
import { readLineFiles } from '../../../shared/batch/function-files.ts';
import { memberText } from '../../../shared/batch/line-body.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import type { PendingLine } from '../lease-run.ts';
import type { FunctionProcess } from './function-process.ts';
import { answeredLine, failedLine, raisedLine } from './function-results.ts';
import type { LeasedLines } from './leased-lines.ts';
import type { LoadedFunctions } from './loaded-functions.ts';
import { type AnsweredLine, sendFiles } from './send-files.ts';

interface CallOptions {
  process: FunctionProcess;
  host: Pick<LoadedFunctions, 'gpuMs' | 'setWell'>;
  leased: LeasedLines;
  lines: readonly PendingLine[];
  /** True if the agent ends. A call that breaks then says nothing about its line. */
  isDraining(): boolean;
  /** Called before the function gets the lines, and after its answer. */
  running(change: number): void;
}

export type CallOutcome = 'done' | 'raised' | 'broken';

/** Runs a call, and adds the results to the lease. @throws Error if a file cannot be copied now */
export async function runCall(options: CallOptions): Promise<CallOutcome> {
  const { process, leased, lines } = options;
  const { work } = leased;
  const missing = await stageFiles(options);
  const [only, ...others] = lines;
  if (missing !== undefined) {
    if (only !== undefined && others.length === 0) work.add(raisedLine(only.line, missing));
    return 'raised';
  }
  options.running(lines.length);
  const began = performance.now();
  const answer = await process
    .call(lines.map(({ body }) => memberText(body, 'input') ?? 'null'))
    .finally(() => options.running(-lines.length));
  if (answer.kind === 'outputs') {
    const ms = performance.now() - began;
    // At most the files of two calls wait.
    if (answer.files !== undefined) await process.outputs.idle();
    addOutputs(options, answer, ms);
    return 'done';
  }
  if (only !== undefined && others.length === 0 && !options.isDraining())
    work.add(
      answer.kind === 'raised'
        ? raisedLine(only.line, answer.error)
        : failedLine(only.line, 'engine_failed', answer.why),
    );
  return answer.kind;
}

type Outputs = Extract<Awaited<ReturnType<FunctionProcess['call']>>, { kind: 'outputs' }>;

function addOutputs(options: CallOptions, { outputs, failed, files }: Outputs, ms: number): void {
  const { process, host, leased, lines } = options;
  const { lease, work, calls } = leased;
  const { context, model } = lease.function;
  host.setWell(context);
  calls.took(lines.length, ms);
  const gpuMs = host.gpuMs(process, ms) / lines.length;
  work.addOutput(process.takeOutput());
  const add = (result: LineResult) => work.add(gpuMs === 0 ? result : { ...result, gpu_ms: gpuMs });
  const withFiles: AnsweredLine[] = [];
  for (const [i, { line }] of lines.entries()) {
    const [why, written, output] = [failed.get(i), files?.get(i), outputs[i]];
    if (why === undefined && written !== undefined) withFiles.push({ line, model, output, files: written });
    else add(why === undefined ? answeredLine(line, model, output) : raisedLine(line, why));
  }
  if (withFiles.length === 0) return;
  // The process begins its next call meanwhile.
  options.running(withFiles.length);
  const sent = process.outputs.whileReading(async () => {
    for (const one of withFiles) add(await sendFiles(process.outputs, leased, one));
    options.running(-withFiles.length);
  });
  leased.addAfter(sent);
}

/** Copies the files of a call to this node. @returns why a file cannot be had by any node @throws Error */
async function stageFiles({ process, leased, lines }: CallOptions): Promise<string | undefined> {
  const { lease, work } = leased;
  const ids = new Set(
    lines.flatMap(({ body }) => readLineFiles(tryParseJson(memberText(body, 'files') ?? 'null')) ?? []),
  );
  try {
    await process.stage([...ids], (id, path, most) => work.gateway.file(lease, { id, path, most }, work.signal));
    return undefined;
  } catch (error) {
    if (error instanceof GatewayRefusalError && error.status === 404) return 'a file of this input was deleted';
    throw error;
  }
}

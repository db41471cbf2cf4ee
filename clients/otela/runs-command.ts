/** `otela runs`: runs of Python functions. A run is all batches with the same `opentela_run` in their metadata. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { LINE_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import { readReferences } from '../../shared/batch/line-references.ts';
import { RESULT_MAX_BYTES } from '../../shared/batch/line-results.ts';
import { LineSplitter } from '../../shared/batch/line-splitter.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { fetchOrExplain } from './fetch-or-explain.ts';
import { type GatewayAccess, readResource, sendFile, sendResource } from './gateway-access.ts';

/** Newest batches that are searched. */
const BATCHES_MAX = 1_000;
const PAGE = 100;
const WATCH_MS = 2_000;
/** Longest line of a file: a response is JSON, and a string in it may be twice as long. */
const FILE_LINE_MAX_BYTES = Math.max(LINE_MAX_BYTES, 2 * RESULT_MAX_BYTES) + 4_096;
const MESSAGE_CHARS = 300;
const OPEN = ['validating', 'in_progress', 'finalizing', 'cancelling'];

const batchSchema = z.object({
  id: z.string(),
  status: z.string(),
  endpoint: z.string(),
  created_at: z.number(),
  completion_window: z.string(),
  input_file_id: z.string(),
  error_file_id: z.string().nullable(),
  metadata: z.record(z.string(), z.string()).nullable(),
  request_counts: z.object({ total: z.number(), completed: z.number(), failed: z.number() }),
  x_otela: z.object({
    nodes: z.number(),
    lines_per_s: z.number(),
    gpu_seconds: z.number().default(0),
    waiting_for: z.string().nullish(),
    /** Batches with results that its lines may need. */
    after: z.array(z.string()).default([]),
  }),
});
type Batch = z.infer<typeof batchSchema>;
const pageSchema = z.object({ data: z.array(batchSchema), has_more: z.boolean() });
const lineSchema = z.object({
  custom_id: z.string().nullable(),
  response: z.object({ body: z.unknown() }).nullish(),
  error: z.object({ code: z.string(), message: z.string() }).nullish(),
});

const inputSchema = z.object({ custom_id: z.string(), after: z.unknown().optional() });
const logSchema = z.object({ text: z.string() });

interface Run {
  id: string;
  batches: Batch[];
}

const HEAD = ['RUN', 'FUNCTION', 'STATUS', 'DONE', 'FAILED', 'CALLS/S', 'NODES', 'GPU SECONDS', 'WAITS FOR'];

async function readRuns(access: GatewayAccess): Promise<Run[]> {
  const runs = new Map<string, Batch[]>();
  let after = '';
  for (let read = 0; read < BATCHES_MAX; read += PAGE) {
    const { data, success } = pageSchema.safeParse(await readResource(access, `/v1/batches?limit=${PAGE}${after}`));
    if (!success) throw new UsageError(`${access.gateway} is not a gateway, or of another version: upgrade otela`);
    for (const batch of data.data) {
      const id = batch.metadata?.opentela_run;
      if (id !== undefined) runs.set(id, [batch, ...(runs.get(id) ?? [])]);
    }
    const last = data.data.at(-1);
    if (!data.has_more || last === undefined) break;
    after = `&after=${last.id}`;
  }
  return [...runs].map(([id, batches]) => ({ id, batches }));
}

/** @throws UsageError if there is none */
async function readRun(access: GatewayAccess, id: string | undefined): Promise<Run> {
  if (id === undefined) throw new UsageError('a run is missing: otela runs shows them');
  const run = (await readRuns(access)).find((one) => one.id === id);
  if (run === undefined)
    throw new UsageError(`there is no run "${id}" of this key's project in its newest ${BATCHES_MAX} batches`);
  return run;
}

function sumOf({ batches }: Run, of: (batch: Batch) => number): number {
  return batches.reduce((sum, batch) => sum + of(batch), 0);
}

function statusOf({ batches }: Run): string {
  const isOpen = batches.some(({ status }) => OPEN.includes(status));
  return isOpen ? 'running' : (batches.at(-1)?.status ?? '');
}

function row(run: Run): string[] {
  const [first] = run.batches;
  const waits = run.batches.map(({ x_otela: more }) => more.waiting_for).find((why) => why) ?? '';
  const count = (name: 'total' | 'completed' | 'failed') => sumOf(run, ({ request_counts: counts }) => counts[name]);
  return [
    run.id,
    first?.metadata?.opentela_function ?? '',
    statusOf(run),
    `${count('completed')}/${count('total')}`,
    String(count('failed')),
    sumOf(run, ({ x_otela: more }) => more.lines_per_s).toFixed(1),
    String(sumOf(run, ({ x_otela: more }) => more.nodes)),
    sumOf(run, ({ x_otela: more }) => more.gpu_seconds).toFixed(1),
    waits,
  ];
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = HEAD.map((_, at) => Math.max(...rows.map((cells) => (cells[at] ?? '').length)));
  return rows.map((cells) =>
    printable(
      cells
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join('  ')
        .trimEnd(),
    ),
  );
}

export async function listRuns(access: GatewayAccess, json: boolean, out: Output): Promise<void> {
  const runs = await readRuns(access);
  if (json) return out.print(JSON.stringify(runs));
  if (runs.length === 0) return out.print('No runs. docs/functions.md shows how to start one.');
  for (const line of table([HEAD, ...runs.map(row)])) out.print(line);
}

/** Prints a line whenever the run has changed, until it has ended. @returns false if calls failed or did not run */
export async function watchRun(access: GatewayAccess, id: string | undefined, out: Output): Promise<boolean> {
  let before = '';
  for (;;) {
    const run = await readRun(access, id);
    const text = table([HEAD, row(run)]);
    const now = text.join('\n');
    if (before === '') out.print(text[0] ?? '');
    if (now !== before) out.print(text[1] ?? '');
    before = now;
    if (statusOf(run) !== 'running') return isComplete(run);
    await sleep(WATCH_MS);
  }
}

/** True if each call has a result, in its batch or in one that retried it. */
function isComplete({ batches }: Run): boolean {
  return batches.every(({ id, status, request_counts: { total, completed } }) => {
    const retries = batches.filter(({ metadata }) => metadata?.opentela_retry_of === id);
    // A batch that failed its check has no calls, and a cancelled one does not count those that did not run as failed.
    if (retries.length === 0) return status === 'completed' && completed === total;
    return completed + retries.reduce((sum, { request_counts: counts }) => sum + counts.total, 0) >= total;
  });
}

/** Prints the last output of the calls, and why calls failed. */
export async function logsOfRun(access: GatewayAccess, id: string | undefined, out: Output): Promise<void> {
  let failed = 0;
  for (const { id: batch, error_file_id: file } of (await readRun(access, id)).batches) {
    const log = logSchema.safeParse(await readResource(access, `/v1/batches/${batch}/log`)).data;
    for (const line of log?.text.split('\n') ?? []) if (line !== '') out.print(printable(line));
    if (file === null) continue;
    await eachLine(access, file, (text) => {
      const line = lineSchema.safeParse(tryParseJson(text)).data;
      if (line === undefined) return;
      failed += 1;
      const { code, message } = line.error ?? messageOf(line.response?.body);
      out.print(printable(`${line.custom_id ?? ''} ${code}: ${message.slice(0, MESSAGE_CHARS)}`));
    });
  }
  if (failed === 0) out.print('No call of an ended batch has failed.');
}

function messageOf(body: unknown): { code: string; message: string } {
  const shape = z.object({ error: z.object({ code: z.string().nullish(), message: z.string() }) });
  const { error } = shape.safeParse(body).data ?? { error: { code: null, message: 'no message' } };
  return { code: error.code ?? 'error', message: error.message };
}

export async function cancelRun(access: GatewayAccess, id: string | undefined, out: Output): Promise<void> {
  let ended = 0;
  for (const { id: batch, status } of (await readRun(access, id)).batches) {
    if (!OPEN.includes(status) || status === 'cancelling') continue;
    await sendResource(access, `/v1/batches/${batch}/cancel`, undefined);
    ended += 1;
  }
  out.print(ended === 0 ? 'The run has ended already.' : `${ended} batches are being cancelled. Their results stay.`);
}

/** Sends the failed calls of ended batches again, as new batches of the run. */
export async function retryRun(access: GatewayAccess, id: string | undefined, out: Output): Promise<void> {
  const run = await readRun(access, id);
  const retried = new Set(run.batches.map(({ metadata }) => metadata?.opentela_retry_of));
  let [sent, dependent] = [0, 0];
  for (const batch of run.batches) {
    if (batch.error_file_id === null || retried.has(batch.id)) continue;
    const failed = await failedCalls(access, batch, batch.error_file_id);
    dependent += failed.dependent;
    if (failed.lines.length === 0) continue;
    const form = new FormData();
    form.set('purpose', 'batch');
    form.set('file', new Blob([failed.lines.join('\n')]), `retry-${randomUUID()}.jsonl`);
    const { id: file } = z.object({ id: z.string() }).parse(await sendFile(access, form));
    const marked = { ...batch.metadata, opentela_retry_of: batch.id };
    const { endpoint, completion_window } = batch;
    const asked = { input_file_id: file, endpoint, completion_window, metadata: marked };
    await sendResource(access, '/v1/batches', JSON.stringify(asked));
    sent += failed.lines.length;
  }
  if (sent > 0) out.print(`${sent} calls are sent again.`);
  else if (dependent === 0) out.print('No call has failed, or all were sent again already.');
  if (dependent > 0) out.print(`${dependent} calls need results of other calls. To send them, run the script again.`);
}

interface FailedCalls {
  lines: string[];
  /** Number of failed calls that need results. The batches with these have ended, so no new batch can name them. */
  dependent: number;
}

async function failedCalls(access: GatewayAccess, batch: Batch, errors: string): Promise<FailedCalls> {
  const failed = new Set<string>();
  await eachLine(access, errors, (text) => {
    const { custom_id: name } = lineSchema.safeParse(tryParseJson(text)).data ?? {};
    if (typeof name === 'string') failed.add(name);
  });
  const found: FailedCalls = { lines: [], dependent: 0 };
  const { length } = batch.x_otela.after;
  await eachLine(access, batch.input_file_id, (text) => {
    const line = inputSchema.safeParse(tryParseJson(text)).data;
    if (line === undefined || !failed.has(line.custom_id)) return;
    if (length === 0 || readReferences(text, line.after, length)?.length === 0) found.lines.push(text);
    else found.dependent += 1;
  });
  return found;
}

/** Reads a file line by line. @throws UsageError */
async function eachLine(access: GatewayAccess, file: string, take: (line: string) => void): Promise<void> {
  const answer = await fetchOrExplain(`${access.gateway}/v1/files/${encodeURIComponent(file)}/content`, {
    headers: { authorization: `Bearer ${access.key}` },
    redirect: 'error', // the key must not reach another server
  });
  if (!answer.ok || answer.body === null)
    throw new UsageError(`${access.gateway} returned ${answer.status} for the file ${file}: it may have been deleted`);
  const decoder = new TextDecoder();
  const splitter = new LineSplitter(
    FILE_LINE_MAX_BYTES,
    ({ bytes }) => take(decoder.decode(bytes)),
    () => {},
  );
  for await (const piece of answer.body) splitter.push(piece);
  splitter.end();
}

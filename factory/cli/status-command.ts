/**
 * `otela-factory status` and `explain`: show the file that a running factory writes in each round. So they work on any
 * node that can read its state directory.
 */
import * as z from 'zod';
import { EXIT_DONE, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { printableJson } from '../../shared/terminal/printable.ts';
import { nearestName } from '../../shared/text/nearest-name.ts';
import { readFactoryConfig } from '../config/read-config.ts';
import { formatMs } from '../config/value-schemas.ts';
import { FactoryError } from '../factory-error.ts';
import { StateFiles } from '../life/state-files.ts';

/** A status that is older than this is stale. A round takes 15 s, or a minute if a batch system is slow. */
const STALE_MS = 120_000;
/** Number of lines that are shown of a log's tail. */
const REST_LINES = 4;
const EXPLAIN_LINES = 12;

const count = z.number();
const statusSchema = z.object({
  at: z.string(),
  pid: count,
  gateway: z.string().optional(),
  report: z.object({
    factory: z.string(),
    models: z.array(
      z.object({
        id: z.string(),
        state: z.string(),
        min: count,
        max: count,
        pending: count,
        running: count,
        ready: count,
        estimate_ms: count.optional(),
        reason: z.string().optional(),
      }),
    ),
    jobs: z.array(
      z.object({
        cluster: z.string(),
        id: z.string(),
        model: z.string(),
        state: z.string(),
        gpus: count,
        gpu: z.string().optional(),
        since_ms: count,
        reason: z.string().optional(),
        log_tail: z.string().optional(),
      }),
    ),
    clusters: z.array(
      z.object({
        id: z.string(),
        launcher: z.string(),
        reachable: z.boolean(),
        reason: z.string().optional(),
        pending: count,
        running: count,
        idle_gpus: count.optional(),
      }),
    ),
  }),
  decisions: z.array(z.object({ at: z.string(), model: z.string().optional(), text: z.string() })),
  wanted: z.record(z.string(), z.object({ jobs: count, floor: count, why: z.string() })),
  held: z.record(z.string(), z.string()),
  back_offs: z.record(
    z.string(),
    z.object({
      resting: z.boolean(),
      until: count,
      reason: z.string(),
      failed: count,
      refused: count,
      short: count,
      log_tail: z.string().optional(),
    }),
  ),
});
type Status = z.infer<typeof statusSchema>;

/** @throws FactoryError `config` if no factory has written a status in the state directory */
function readStatus(configPath: string): { status: Status; ageMs: number } {
  const { state } = readFactoryConfig(configPath);
  const value = new StateFiles(state).read('status.json');
  if (value === undefined) throw new FactoryError('config', `no factory has used the state directory ${state}`);
  const read = statusSchema.safeParse(value);
  if (!read.success)
    throw new FactoryError(
      'config',
      `${state}/status.json has a different version: ${read.error.issues[0]?.path.join('.')}`,
    );
  return { status: read.data, ageMs: Math.max(0, Date.now() - Date.parse(read.data.at)) };
}

function header({ report, pid, gateway }: Status, ageMs: number): string[] {
  return [
    `${report.factory}: last round ${formatMs(ageMs)} ago (pid ${pid})${ageMs > STALE_MS ? '; it is not running' : ''}`,
    ...(gateway === undefined ? [] : [`the gateway: ${gateway}`]),
  ];
}

export function statusCommand(configPath: string, json: boolean, io: Io): number {
  const { status, ageMs } = readStatus(configPath);
  if (json) {
    io.out(printableJson(status, 2));
    return EXIT_DONE;
  }
  const { report, decisions } = status;
  const lines = [
    ...header(status, ageMs),
    '',
    ...table(
      ['model', 'state', 'ready', 'running', 'waiting', 'max', 'why'],
      report.models.map((one) => [one.id, one.state, one.ready, one.running, one.pending, one.max, one.reason ?? '']),
    ),
    '',
    ...table(
      ['cluster', 'launcher', 'running', 'waiting', 'idle GPUs', ''],
      report.clusters.map((one) => [
        one.id,
        one.launcher,
        one.running,
        one.pending,
        one.idle_gpus ?? '-',
        one.reachable ? '' : `does not answer: ${one.reason ?? ''}`,
      ]),
    ),
    '',
    ...table(
      ['job', 'model', 'state', 'GPUs', 'for', 'why'],
      report.jobs.map((one) => [
        `${one.cluster}/${one.id}`,
        one.model,
        one.state,
        `${one.gpus} ${one.gpu ?? ''}`.trim(),
        formatMs(one.since_ms),
        one.reason ?? '',
      ]),
    ),
    '',
    ...restLines(status),
    ...decisions
      .slice(-10)
      .map(({ at, model, text }) => `${at.slice(0, 19)}Z ${model === undefined ? '' : `${model}: `}${text}`),
  ];
  io.out(lines.join('\n'));
  return EXIT_DONE;
}

/**
 * Returns a line for each model whose starts are suspended after failures. The list of decisions may no longer show
 * them, but an operator must act.
 */
function restLines({ back_offs, at }: Status): string[] {
  const now = Date.parse(at);
  const rests = Object.entries(back_offs).filter(([, { resting, until }]) => resting && now < until);
  if (rests.length === 0) return [];
  const lines = rests.flatMap(([key, { until, failed, log_tail: tail = '' }]) => [
    `${key.replace('#', ', context ')} pauses for ${formatMs(until - now)} more after ${failed} failed starts${tail === '' ? '' : '. The end of its log:'}`,
    ...tailLines(tail, REST_LINES),
  ]);
  return [...lines, ''];
}

function tailLines(tail: string, count: number): string[] {
  return tail === ''
    ? []
    : tail
        .split('\n')
        .slice(-count)
        .map((line) => `    ${line}`);
}

export function explainCommand(configPath: string, model: string | undefined, json: boolean, io: Io): number {
  const { status, ageMs } = readStatus(configPath);
  const ids = status.report.models.map(({ id }) => id);
  const found = status.report.models.find(({ id }) => id === model);
  if (model === undefined || found === undefined) {
    const meant = model === undefined ? undefined : nearestName(model, ids);
    throw new UsageError(
      `unknown model; ${meant === undefined ? `there are ${ids.join(', ')}` : `did you mean ${meant}?`}`,
    );
  }
  const wanted = status.wanted[model];
  const held = status.held[model];
  const backOffs = Object.entries(status.back_offs).filter(([key]) => key.startsWith(`${model}@`));
  const jobs = status.report.jobs.filter((job) => job.model === model);
  const decisions = status.decisions.filter((one) => one.model === model).slice(-20);
  if (json) {
    io.out(printableJson({ model: found, wanted, held, back_offs: Object.fromEntries(backOffs), jobs, decisions }, 2));
    return EXIT_DONE;
  }
  const now = Date.parse(status.at);
  const lines = [
    ...header(status, ageMs),
    `${model} is ${found.state}${found.estimate_ms === undefined ? '' : `, a response in about ${formatMs(found.estimate_ms)}`}: ${found.reason ?? ''}`,
    `wants ${wanted?.jobs ?? 0} of at most ${found.max}: ${wanted?.why ?? ''}`,
    `has ${found.ready} ready, ${found.running} running, ${found.pending} waiting`,
    ...(held === undefined ? [] : [`held back: ${held}`]),
    ...backOffs.flatMap(([key, one]) => [
      `${key.slice(model.length + 1).replace('#', ', context ')}: ${one.resting ? 'pauses' : 'waits'} ${now < one.until ? `for ${formatMs(one.until - now)} more` : 'no longer'} (${one.failed} failed starts, ${one.refused} refusals, ${one.short} jobs that ended too early): ${one.reason}`,
      ...tailLines(one.log_tail ?? '', EXPLAIN_LINES),
    ]),
    ...jobs.map(
      (job) =>
        `${job.cluster}/${job.id} ${job.state} for ${formatMs(job.since_ms)}${job.reason === undefined ? '' : `: ${job.reason}`}`,
    ),
    ...decisions.map(({ at, text }) => `${at.slice(0, 19)}Z ${text}`),
  ];
  io.out(lines.join('\n'));
  return EXIT_DONE;
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string[] {
  const all = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, n) => Math.max(...all.map((row) => row[n]?.length ?? 0)));
  return all.map((row) =>
    row
      .map((cell, n) => (n === head.length - 1 ? cell : cell.padEnd(widths[n] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

/** `otela-gateway usage|trace|audit`: usage, the workload trace, and the audit log. */
import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import * as z from 'zod';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  type ParsedFlags,
  parseLine,
  UsageError,
} from '../../shared/command-line/index.ts';
import { TRACE_FORMATS } from '../usage/trace-line.ts';
import { askGateway, CONNECTION_FLAGS, download, refuseIgnoredFlags, targetAt } from './api-client.ts';
import { isStdoutClosed, waitForStdout } from './closed-stdout.ts';
import { proveCommand } from './statement-files.ts';
import { Table } from './table.ts';
import { eachLine, plotTrace, reasoningModels, sampleNodes } from './trace/plot-trace.ts';
import { readTraceLine } from './trace/read-trace-line.ts';
import { TraceStats } from './trace/trace-stats.ts';

const when = (help: string) => ({ value: 'TIME', help }) as const;
const only = (value: string, help: string) => ({ value, help }) as const;
const GROUPS = ['day', 'project', 'user', 'key', 'model', 'provider', 'peer'];
/** Group that cannot be combined with others: a batch has one project, key and model. */
const BATCH = 'batch';
const BATCH_COLUMNS = [
  'id',
  'day',
  'status',
  'project',
  'key',
  'model',
  'requests',
  'failed',
  'prompt_tokens',
  'completion_tokens',
];
const COUNTS = [
  'requests',
  'failed',
  'prompt_tokens',
  'completion_tokens',
  'mean_queue_ms',
  'mean_first_token_ms',
  'mean_engine_first_token_ms',
  'mean_total_ms',
  'gpu_seconds',
];
/** Shown if there are any. */
const MEDIA_COUNTS = ['audio_seconds', 'images'];

const USAGE_FLAGS = {
  from: when('first day (UTC), for example 2026-11-01'),
  to: when('last day (UTC)'),
  by: { default: 'day', value: GROUPS.join(','), takes: [...GROUPS, BATCH], help: 'one or more groups, or batch' },
  model: only('M', 'only this model'),
  project: only('ID', 'only this project'),
  user: only('ID', 'only this user'),
  key: only('ID', 'only this key'),
  provider: only('P', 'only nodes of this provider'),
  peer: only('NAME', 'only requests of this peer institution'),
  attempt: { value: 'N', help: 'prove: this attempt of the request; default: its only one' },
  check: { value: 'FILE', takes: 'file', help: 'prove: check a proof, and print its record' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const USAGE_COMMAND: Command = {
  summary: 'show usage: requests and tokens, by day or by other groups',
  examples: `[--by WHAT,…] [--from DAY] [--to DAY] [filters] | prove FILE REQUEST | prove --check PROOF

  otela-gateway usage                                          by day
  otela-gateway usage --from 2026-11-01 --by project,model
  otela-gateway usage --by batch --from 2026-11-01
  otela-gateway usage --by peer,project                        what our nodes served for peer institutions
  otela-gateway usage --by user --project proj_77… --json
  otela-gateway usage prove served.ndjson REQUEST > proof.json a request is part of a signed statement
  otela-gateway usage prove --check proof.json`,
  verbs: ['prove'],
  flags: USAGE_FLAGS,
  run: usageCommand,
};

async function usageCommand(args: readonly string[]): Promise<number> {
  const { values, words, given: named } = parseLine(args, USAGE_FLAGS, { words: 3 });
  const [verb, file, request] = words;
  refuseIgnoredFlags(verb, { attempt: [named.get('attempt'), 'prove'], check: [named.get('check'), 'prove'] });
  if (verb === 'prove') return await proveCommand({ file, request, attempt: values.attempt, check: values.check });
  if (verb !== undefined) throw new UsageError('usage: otela-gateway usage [prove FILE REQUEST | prove --check PROOF]');
  const { by, from, to, model, project, user, key, provider, peer } = values;
  const given = { from, to, model, project, user, key, provider, peer };
  if (by === BATCH) {
    const data = await pages(targetAt('/admin/usage/batches', values), queryOf(given), (page) =>
      page.has_more ? page.data.at(-1)?.id : undefined,
    );
    return shown(data, BATCH_COLUMNS, values.json);
  }
  const query = queryOf({ ...given, group_by: by });
  const data = await pages(targetAt('/admin/usage', values), query, ({ next }) => next ?? undefined);
  const media = MEDIA_COUNTS.filter((name) => data.some(({ [name]: count }) => Number(count) > 0));
  return shown(data, [...by.split(',').filter((name) => GROUPS.includes(name)), ...COUNTS, ...media], values.json);
}

function queryOf(given: Readonly<Record<string, string | undefined>>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== undefined) query.set(name, value);
  return query;
}

function shown(data: readonly Record<string, unknown>[], columns: readonly string[], json: boolean): number {
  const table = new Table(columns);
  for (const one of data) {
    if (json) console.log(JSON.stringify(one));
    else table.add(columns.map((name) => String(one[name] ?? '')));
  }
  if (!json) table.flush();
  return EXIT_DONE;
}

const pageSchema = z.object({
  data: z.array(z.record(z.string(), z.unknown())),
  has_more: z.boolean(),
  next: z.string().nullish(),
});

/** Prints pages until there is no next one. @param next the cursor for the next page; undefined: there is none */
async function pages(
  target: ReturnType<typeof targetAt>,
  query: URLSearchParams,
  next: (page: z.infer<typeof pageSchema>) => unknown,
): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  for (;;) {
    const page = pageSchema.parse(await askGateway(target, 'GET', `?${query}`));
    all.push(...page.data);
    const after = next(page);
    if (typeof after !== 'string') return all;
    query.set('after', after);
  }
}

const TRACE_FLAGS = {
  from: when('start of the trace, for example 2026-11-01T00:00:00Z'),
  to: when('end of the trace, for example 2026-11-08T00:00:00Z'),
  format: {
    default: 'ndjson',
    value: TRACE_FORMATS.join('|'),
    takes: [...TRACE_FORMATS],
    help: 'export: output format; published: as eth-easl/swissai-serving-trace',
  },
  out: { default: './figures', value: 'DIR', help: 'plot: directory for SVG and JSON files' },
  nodes: { value: 'FILE', takes: 'file', help: 'plot: output of trace sample, for Figures 1, 16 and 17' },
  reasoning: { value: 'M,…', help: 'plot: models that reason; default with --from: as in the settings of the gateway' },
  every: { value: 'SECONDS', help: 'sample: repeat after this many seconds' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;
const TRACE_USAGE =
  'usage: otela-gateway trace export --from … --to … | trace stats|plot --from … --to … | trace stats|plot FILE.ndjson | trace sample';

export const TRACE_COMMAND: Command = {
  summary: 'export and plot the workload trace, which contains no text',
  examples: `export | stats [FILE.ndjson] | plot [FILE.ndjson] | sample

  otela-gateway trace export --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z > week.ndjson
  otela-gateway trace export --from … --to … --format csv > week.csv
  otela-gateway trace export --from … --to … --format published > trace.jsonl
  otela-gateway trace stats week.ndjson                        from a gateway: stats --from … --to …
  otela-gateway trace sample --every 60 >> nodes.ndjson        GPUs, KV cache and power of each node
  otela-gateway trace plot week.ndjson --nodes nodes.ndjson
plot prints and draws Table 2 and Figures 1 and 9 to 17 of OpenTela (OSDI '26), and the figures of OpenFabric that
it does not have. stats and plot also read the published trace eth-easl/swissai-serving-trace.`,
  verbs: ['export', 'stats', 'plot', 'sample'],
  flags: TRACE_FLAGS,
  run: traceCommand,
};

async function traceCommand(args: readonly string[]): Promise<number> {
  const { values, given, words } = parseLine(args, TRACE_FLAGS, { words: 2 });
  const [verb, file] = words;
  const of = { format: 'export', out: 'plot', nodes: 'plot', reasoning: 'plot', every: 'sample' };
  refuseIgnoredFlags(verb, Object.fromEntries(Object.entries(of).map(([flag, one]) => [flag, [given.get(flag), one]])));
  if (verb === 'stats') return traceStats(values, file);
  if (verb === 'plot') return tracePlot(values, file);
  if (verb === 'sample' && file === undefined) {
    const every = values.every === undefined ? undefined : Number(values.every) * 1_000;
    if (every !== undefined && !(every >= 1_000 && every <= 86_400_000))
      throw new UsageError('--every must be 1 to 86400 seconds');
    await sampleNodes(targetAt('/admin/nodes', values), every);
    return EXIT_DONE;
  }
  const { from, to, format } = values;
  if (verb !== 'export' || file !== undefined || from === undefined || to === undefined)
    throw new UsageError(TRACE_USAGE);
  const body = await download(targetAt('/admin/trace', values), `?${new URLSearchParams({ from, to, format })}`);
  for await (const chunk of body) {
    if (isStdoutClosed()) break;
    if (!process.stdout.write(chunk)) await waitForStdout();
  }
  return EXIT_DONE;
}

/** Returns a trace: a file that was exported before, or the gateway's export. */
async function traceSource(values: ParsedFlags<typeof TRACE_FLAGS>, file: string | undefined): Promise<Readable> {
  const { from, to } = values;
  const asked = from !== undefined && to !== undefined;
  if (asked === (file !== undefined)) throw new UsageError(TRACE_USAGE);
  return asked
    ? Readable.fromWeb(await download(targetAt('/admin/trace', values), `?${new URLSearchParams({ from, to })}`))
    : createReadStream(file ?? '');
}

async function traceStats(values: ParsedFlags<typeof TRACE_FLAGS>, file: string | undefined): Promise<number> {
  const stats = new TraceStats();
  await eachLine(await traceSource(values, file), (text) => {
    const line = readTraceLine(text);
    if (line !== undefined) stats.add(line);
  });
  printStats(stats, values.json);
  return EXIT_DONE;
}

async function tracePlot(values: ParsedFlags<typeof TRACE_FLAGS>, file: string | undefined): Promise<number> {
  const { nodes, out, reasoning, from } = values;
  const hasTrace = file !== undefined || from !== undefined;
  if (!hasTrace && nodes === undefined) throw new UsageError(TRACE_USAGE);
  const classed =
    reasoning !== undefined
      ? new Set(reasoning.split(',').map((name) => name.trim()))
      : from === undefined
        ? new Set<string>()
        : await reasoningModels(targetAt('/admin/models', values));
  const trace = hasTrace ? await traceSource(values, file) : undefined;
  await plotTrace({ trace, nodes, reasoning: classed, out });
  return EXIT_DONE;
}

function printStats(stats: TraceStats, json: boolean): void {
  const models = stats.report();
  if (json) {
    for (const one of models) console.log(JSON.stringify(one));
    return;
  }
  const whole = (n: number) => String(Math.round(n));
  const percent = (part: number) => `${(part * 100).toFixed(1)} %`;
  const spread = ({ p50, p90, p99 }: { p50: number; p90: number; p99: number }) =>
    [p50, p90, p99].map(whole).join(' / ');
  const tables = [
    [
      [
        'model',
        'requests',
        'refused',
        'failed',
        'input tokens',
        'output tokens',
        'of all tokens',
        'output/input',
        'cached',
      ],
      ...models.map((one) => [
        `${one.model}${one.reasoning ? ' (reasoning)' : ''}`,
        ...[one.requests, one.refused, one.failed, one.inputTokens, one.outputTokens].map(whole),
        percent(one.share),
        one.outputRatio.toFixed(2),
        percent(one.inputTokens === 0 ? 0 : one.cachedTokens / one.inputTokens),
      ]),
    ],
    [
      ['model', 'input p50/p90/p99', 'output p50/p90/p99', 'burstiness', 'peak/mean minute', 'prefix reuse'],
      ...models.map((one) => [
        one.model,
        spread(one.input),
        spread(one.output),
        one.burstiness.toFixed(2),
        one.peakToMean.toFixed(1),
        one.prefixReuse === undefined ? 'no buckets' : `${percent(one.prefixReuse)} of ${one.blocks} blocks`,
      ]),
    ],
    [
      ['models', 'requests', 'first token ms p50/p90/p99', 'total ms p50/p90/p99'],
      ...stats.latencies().map((one) => [one.kind, whole(one.requests), spread(one.firstMs), spread(one.totalMs)]),
    ],
  ];
  for (const [head = [], ...rows] of tables) {
    console.log('');
    const table = new Table(head);
    for (const row of rows) table.add(row);
    table.flush();
  }
  if (stats.truncated)
    console.error('the trace is long: arrivals and prefixes use only the first five million requests');
}

export const AUDIT_COMMAND: Command = {
  summary: 'show the audit log of changes, newest first',
  examples: `[--json]

  otela-gateway audit | head
  otela-gateway audit --json | jq 'select(.action == "key.revoke")'`,
  flags: CONNECTION_FLAGS,
  run: auditCommand,
};

async function auditCommand(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, CONNECTION_FLAGS);
  const line = z.object({ at: z.string(), actor: z.string(), action: z.string(), target: z.string() });
  const row = (value: unknown) => {
    const { at, actor, action, target } = line.parse(value);
    return [at, actor, action, target];
  };
  const page = z.object({ data: z.array(z.looseObject({ id: z.number() })), has_more: z.boolean() });
  const target = targetAt('/admin/audit', values);
  const table = new Table(['at', 'who', 'action', 'what']);
  for (let after = '', more = true; more && !isStdoutClosed(); ) {
    const { data, has_more } = page.parse(await askGateway(target, 'GET', after));
    for (const one of data) {
      if (values.json) console.log(JSON.stringify(one));
      else table.add(row(one));
    }
    if (!values.json) table.flush();
    after = `?after=${data.at(-1)?.id}`;
    more = has_more && data.length > 0;
  }
  return EXIT_DONE;
}

/** `otela-gateway statement`: what a month's usage costs. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { askGateway, CONNECTION_FLAGS, download, targetAt } from './api-client.ts';
import { compareCommand } from './statement-files.ts';
import { Table } from './table.ts';

const FLAGS = {
  month: { value: 'YYYY-MM', help: 'month (UTC); default: the current one' },
  project: { value: 'ID', help: 'only this project' },
  csv: { help: 'print CSV, for a spreadsheet or an accounting system' },
  peer: { value: 'NAME', help: 'the signed statement between this institution and a peer institution' },
  side: {
    default: 'served',
    value: 'served|used',
    takes: ['served', 'used'],
    help: 'with --peer: what our nodes served, or what our users used',
  },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const STATEMENT_COMMAND: Command = {
  summary: "show what a month's usage costs, or compare statements of two institutions",
  examples: `[--month YYYY-MM] [--project ID] [--csv] | --peer NAME [--side used] | compare OURS THEIRS

  otela-gateway statement --month 2026-11
  otela-gateway statement --month 2026-11 --project proj_77… --csv > physics.csv
  otela-gateway statement --month 2026-11 --peer psi > served.ndjson            each request, signed
  otela-gateway statement compare served.ndjson from-psi.ndjson                 what both dispute; exit code 1

Prices are the setting \`prices\`. Each line is rounded, and the total is the sum of the lines.`,
  verbs: ['compare'],
  flags: FLAGS,
  run: statementCommand,
};

const statementSchema = z.object({
  unit: z.string().nullable(),
  total: z.string(),
  lines: z.array(
    z.object({
      project: z.string().nullable(),
      project_name: z.string().nullable(),
      model: z.string(),
      provider: z.string().nullable(),
      requests: z.number(),
      prompt_tokens: z.number(),
      completion_tokens: z.number(),
      gpu_seconds: z.number(),
      amount: z.string(),
    }),
  ),
});

async function statementCommand(args: readonly string[]): Promise<number> {
  const { values, words, given } = parseLine(args, FLAGS, { words: 3 });
  const { month, project, csv, json, peer, side } = values;
  const [verb, ours, theirs] = words;
  if (verb !== undefined) {
    if (verb !== 'compare' || ours === undefined || theirs === undefined)
      throw new UsageError('usage: otela-gateway statement [compare OURS THEIRS]');
    return await compareCommand(ours, theirs, json);
  }
  if (given.has('side') && peer === undefined) throw new UsageError('--side is for --peer');
  if (peer !== undefined) {
    const asked = new URLSearchParams({ side, ...(month !== undefined && { month }) });
    const path = `/${encodeURIComponent(peer)}/statement?${asked}`;
    await pipeline(Readable.fromWeb(await download(targetAt('/admin/peers', values), path)), process.stdout, {
      end: false,
    });
    return EXIT_DONE;
  }
  const target = targetAt('/admin/statements', values);
  const query = new URLSearchParams();
  if (month !== undefined) query.set('month', month);
  if (project !== undefined) query.set('project', project);
  if (csv) {
    query.set('format', 'csv');
    await pipeline(Readable.fromWeb(await download(target, `?${query}`)), process.stdout, { end: false });
    return EXIT_DONE;
  }
  const answer = await askGateway(target, 'GET', `?${query}`);
  if (json) {
    console.log(JSON.stringify(answer));
    return EXIT_DONE;
  }
  const { unit, lines, total } = statementSchema.parse(answer);
  const table = new Table([
    'project',
    'model',
    'provider',
    'requests',
    'prompt',
    'completion',
    'GPU h',
    unit ?? 'no prices',
  ]);
  for (const one of lines) {
    const counts = [one.requests, one.prompt_tokens, one.completion_tokens].map(String);
    const gpu = (one.gpu_seconds / 3600).toFixed(2);
    table.add([one.project_name ?? one.project ?? '–', one.model, one.provider ?? '–', ...counts, gpu, one.amount]);
  }
  table.add(['total', '', '', '', '', '', '', total]);
  table.flush();
  return EXIT_DONE;
}

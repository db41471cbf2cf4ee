/** `otela-gateway statement`: what a month's usage costs. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine } from '../../shared/command-line/index.ts';
import { askGateway, CONNECTION_FLAGS, download, targetAt } from './api-client.ts';
import { Table } from './table.ts';

const FLAGS = {
  month: { value: 'YYYY-MM', help: 'month (UTC); default: the current one' },
  project: { value: 'ID', help: 'only this project' },
  csv: { help: 'print CSV, for a spreadsheet or an accounting system' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const STATEMENT_COMMAND: Command = {
  summary: "show what a month's usage costs, by project, model and provider",
  examples: `[--month YYYY-MM] [--project ID] [--csv]

  otela-gateway statement --month 2026-11
  otela-gateway statement --month 2026-11 --project proj_77… --csv > physics.csv

Prices are the setting \`prices\`. Each line is rounded, and the total is the sum of the lines.`,
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
      amount: z.string(),
    }),
  ),
});

async function statementCommand(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  const { month, project, csv, json } = values;
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
  const table = new Table(['project', 'model', 'provider', 'requests', 'prompt', 'completion', unit ?? 'no prices']);
  for (const one of lines) {
    const counts = [one.requests, one.prompt_tokens, one.completion_tokens].map(String);
    table.add([one.project_name ?? one.project ?? '–', one.model, one.provider ?? '–', ...counts, one.amount]);
  }
  table.add(['total', '', '', '', '', '', total]);
  table.flush();
  return EXIT_DONE;
}

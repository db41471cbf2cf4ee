/** `otela-gateway usage|trace|audit`: what was used, and who changed what. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, doorTo, download, UsageError } from './client.ts';

export const USAGE_USAGE = `otela-gateway usage [--from 2026-11-01] [--to 2026-11-30] [--by day,project,user,key,model,provider] [--model M] [--project ID] [--user ID] [--key ID] [--provider P]
otela-gateway trace export --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z [--format ndjson|csv]
otela-gateway audit`;

const text = { type: 'string' } as const;
const FILTERS = { model: text, project: text, user: text, key: text, provider: text } as const;
const GROUPS = ['day', 'project', 'user', 'key', 'model', 'provider'];
const COUNTS = ['requests', 'failed', 'prompt_tokens', 'completion_tokens', 'mean_first_token_ms', 'mean_total_ms'];

export async function usageCommand(args: string[]): Promise<number> {
  const options = { ...CONNECTION, ...FILTERS, from: text, to: text, by: { type: 'string', default: 'day' } } as const;
  const { values } = parseArgs({ args, options });
  const { from, to, by, model, project, user, key, provider } = values;
  const given = Object.entries({ from, to, model, project, user, key, provider, group_by: by });
  const query = new URLSearchParams(
    given.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as [string, string]])),
  );
  const data = await allPages(doorTo('/admin/usage', values), query);
  if (values.json) {
    for (const one of data) console.log(JSON.stringify(one));
    return 0;
  }
  const columns = [...by.split(',').filter((name) => GROUPS.includes(name)), ...COUNTS];
  for (const line of aligned([columns, ...data.map((one) => columns.map((name) => String(one[name] ?? '')))])) {
    console.log(line);
  }
  return 0;
}

const pageSchema = z.object({ data: z.array(z.record(z.string(), z.unknown())), next: z.string().nullable() });

async function allPages(door: ReturnType<typeof doorTo>, query: URLSearchParams): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  for (let next: string | null = ''; next !== null; ) {
    const page = pageSchema.parse(await ask(door, 'GET', `?${query}`));
    all.push(...page.data);
    next = page.next;
    query.set('after', next ?? '');
  }
  return all;
}

export async function traceCommand(args: string[]): Promise<number> {
  const options = { ...CONNECTION, from: text, to: text, format: { type: 'string', default: 'ndjson' } } as const;
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const { from, to, format } = values;
  if (positionals.join(' ') !== 'export' || from === undefined || to === undefined) throw new UsageError(USAGE_USAGE);
  const body = await download(doorTo('/admin/trace', values), `?${new URLSearchParams({ from, to, format })}`);
  for await (const chunk of body) if (!process.stdout.write(chunk)) await drained();
  return 0;
}

export async function auditCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: CONNECTION });
  const line = z.object({ at: z.string(), actor: z.string(), action: z.string(), target: z.string() });
  const row = (value: unknown) => {
    const { at, actor, action, target } = line.parse(value);
    return [at, actor, action, target];
  };
  const page = z.object({ data: z.array(z.looseObject({ id: z.number() })), has_more: z.boolean() });
  const door = doorTo('/admin/audit', values);
  for (let after = '', more = true; more; ) {
    const { data, has_more } = page.parse(await ask(door, 'GET', after));
    for (const one of data) console.log(values.json ? JSON.stringify(one) : row(one).join('  '));
    after = `?after=${data.at(-1)?.id}`;
    more = has_more && data.length > 0;
  }
  return 0;
}

function drained(): Promise<void> {
  return new Promise((resolve) => process.stdout.once('drain', () => resolve()));
}

function aligned(rows: string[][]): string[] {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((one) => one[column]?.length ?? 0))) ?? [];
  return rows.map((one) =>
    one
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

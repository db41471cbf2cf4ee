/** Statements: what a project, or a user, used in a month, and what it costs. */
import { and, eq, gte, lte, type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { projects, settings } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable, reportDatabase } from '../../accounts/database.ts';
import { sqlFragments } from '../../accounts/sql-fragments.ts';
import type { Env } from '../../env.ts';
import { type Prices, pricesSchema } from '../../settings/price-settings.ts';
import { type DailyUsage, type StatementLine, statementLines, sumAmounts } from '../../usage/statement.ts';
import { usageTotals } from '../../usage/usage-tables.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { isProjectLead } from '../people/members.ts';

/** Rows of totals in a statement: 31 days of 3,000 combinations of project, model and provider. */
const ROWS_MAX = 100_000;
/** Names of projects in a statement. */
const PROJECTS_MAX = 10_000;

const statementQuery = z.strictObject({
  /** The month, UTC. Default: the current one. */
  month: z
    .string()
    .regex(/^\d{4}-(?:0[1-9]|1[0-2])$/, 'must be a month such as 2026-11')
    .optional(),
  /** Id of the project. Default: all projects, for operators; the own usage, for others. */
  project: z.string().max(64).optional(),
  /** `yes`: the own usage, also for operators. */
  own: z.enum(['yes', 'no']).default('no'),
  format: z.enum(['json', 'csv']).default('json'),
});
type StatementQuery = z.infer<typeof statementQuery>;

const lineSchema = z.object({
  /** Id of the project; null: usage without a project. */
  project: z.string().nullable(),
  project_name: z.string().nullable(),
  model: z.string(),
  /** Provider of the nodes; null: no node received these requests. */
  provider: z.string().nullable(),
  requests: z.number(),
  prompt_tokens: z.number(),
  cached_tokens: z.number(),
  completion_tokens: z.number(),
  /** Seconds of one GPU, for which the nodes of these requests published GPUs. */
  gpu_seconds: z.number(),
  /** Decimal number. */
  amount: z.string(),
});
const statementSchema = z.object({
  object: z.literal('statement'),
  month: z.string(),
  project: z.string().nullable(),
  /** The unit of amounts; null: the gateway has no prices. */
  unit: z.string().nullable(),
  lines: z.array(lineSchema),
  /** Sum of the amounts. */
  total: z.string(),
});
type Statement = z.infer<typeof statementSchema>;

export const statementRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/statements',
    summary:
      'Return the usage of a month and what it costs, by project, model and provider. Operators see all projects, leads their projects, other users their own usage.',
    query: statementQuery,
    answer: statementSchema,
    run: readStatement,
  }),
];

async function readStatement(call: AdminCall<unknown, StatementQuery>): Promise<object | Response> {
  const { env, query, now } = call;
  const month = query.month ?? new Date(now).toISOString().slice(0, 7);
  const [prices, rows] = await Promise.all([readPrices(env), readUsage(env, month, await visible(call))]);
  const names = await projectNames(env);
  const lines = statementLines(rows, prices).map((line) => view(line, names));
  const total = sumAmounts(
    lines.map(({ amount }) => amount),
    prices?.decimals ?? 0,
  );
  const project = query.project ?? null;
  const statement: Statement = { object: 'statement', month, project, unit: prices?.unit ?? null, lines, total };
  if (query.format === 'json') return statement;
  const headers = {
    'content-type': 'text/csv; charset=utf-8',
    'content-disposition': `attachment; filename="statement-${month}.csv"`,
    'cache-control': 'no-store',
  };
  return new Response(csvOf(statement), { headers });
}

/** Selects the usage that the caller may see. @throws ApiError 404 if the caller does not lead the project */
async function visible(call: AdminCall<unknown, StatementQuery>): Promise<SQL | undefined> {
  const { account, query } = call;
  const { project, own } = query;
  if (project !== undefined) {
    if (own === 'yes') throw new ApiError('invalid_request', 'own: is not for the statement of a project.');
    if (await isProjectLead(call, project)) return eq(usageTotals.project, project);
    throw new ApiError('not_found', `There is no project with id "${project}" that you lead.`);
  }
  if (account.role === 'operator' && own === 'no') return undefined;
  const { userId, keyId } = account;
  return userId === undefined ? eq(usageTotals.key, keyId) : eq(usageTotals.user, userId);
}

/** Reads the prices. They are not in the snapshot, because no request to a model needs them. */
export async function readPrices(env: Pick<Env, 'DB'>): Promise<Prices | undefined> {
  const [row] = await queryOrUnavailable(
    database(env).select({ value: settings.value }).from(settings).where(eq(settings.name, 'prices')),
  );
  return pricesSchema.safeParse(row?.value).data;
}

/** @throws ApiError 422 if the statement would have too many rows */
async function readUsage(env: Env, month: string, where: SQL | undefined): Promise<DailyUsage[]> {
  const { day, project, model, provider } = usageTotals;
  const { least, total } = sqlFragments(env);
  const sum = (column: SQLiteColumn) =>
    sql<number>`cast(${least(total(column), sql.raw(String(Number.MAX_SAFE_INTEGER)))} as bigint)`;
  const rows = await queryOrUnavailable(
    reportDatabase(env)
      .select({
        day,
        project,
        model,
        provider,
        requests: sum(usageTotals.requests),
        prompt_tokens: sum(usageTotals.prompt),
        cached_tokens: sum(usageTotals.cached),
        completion_tokens: sum(usageTotals.completion),
        gpu_ms: sum(usageTotals.gpuMs),
      })
      .from(usageTotals)
      .where(and(gte(day, `${month}-01`), lte(day, `${month}-31`), where))
      .groupBy(project, model, provider, day)
      .orderBy(project, model, provider, day)
      .limit(ROWS_MAX + 1),
  );
  if (rows.length <= ROWS_MAX) return rows.map((row) => ({ ...row, ...counts(row) }));
  throw new ApiError(
    'unprocessable_content',
    `project: the statement has more than ${ROWS_MAX} rows; name a project.`,
    {
      param: 'project',
    },
  );
}

/** PostgreSQL returns big integers as text. */
function counts(row: Omit<DailyUsage, 'day' | 'project' | 'model' | 'provider'>) {
  return {
    requests: Number(row.requests),
    prompt_tokens: Number(row.prompt_tokens),
    cached_tokens: Number(row.cached_tokens),
    completion_tokens: Number(row.completion_tokens),
    gpu_ms: Number(row.gpu_ms),
  };
}

async function projectNames(env: Pick<Env, 'DB'>): Promise<ReadonlyMap<string, string>> {
  const { id, name } = projects;
  const rows = await queryOrUnavailable(database(env).select({ id, name }).from(projects).limit(PROJECTS_MAX));
  return new Map(rows.map((row) => [row.id, row.name]));
}

function view(line: StatementLine, names: ReadonlyMap<string, string>): Statement['lines'][number] {
  const { project, provider, gpu_ms: gpuMs, ...rest } = line;
  const named = { project: project || null, project_name: names.get(project) ?? null, provider: provider || null };
  return { ...rest, ...named, gpu_seconds: gpuMs / 1000 };
}

const COLUMNS = [
  'project',
  'project_name',
  'model',
  'provider',
  'requests',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'gpu_seconds',
  'amount',
] as const satisfies readonly (keyof Statement['lines'][number])[];

/** Writes RFC 4180: the lines, and no sum, so that the column can be added up. */
function csvOf({ month, unit, lines }: Statement): string {
  const rows = lines.map((line) => [month, ...COLUMNS.map((name) => line[name] ?? ''), unit ?? '']);
  return [['month', ...COLUMNS, 'unit'], ...rows].map((row) => `${row.map(csvField).join(',')}\r\n`).join('');
}

/** A leading = + - @ would make a spreadsheet run a model's name as a formula, so such a text gets an apostrophe. */
function csvField(value: string | number): string {
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

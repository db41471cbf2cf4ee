import { useMemo, useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { type Me, type Usage, usageSchema } from '../api/schemas.ts';
import { count, milliseconds, plural } from '../parts/format.ts';
import { Plot } from '../parts/plot.tsx';
import { Empty, Field, Show, Wide } from '../parts/ui.tsx';
import { useLoad } from '../parts/use-load.ts';

const totalsSchema = z.object({ data: z.array(usageSchema), next: z.nullable(z.string()) });

/** All of it: a sum that lacks some would be a wrong one. */
async function totalsBy(group: string, signal: AbortSignal): Promise<Usage[]> {
  const all: Usage[] = [];
  for (let after = ''; ; ) {
    const { data, next } = await ask(totalsSchema, `/admin/usage?group_by=${group}${after}`, signal);
    all.push(...data);
    if (next === null) return all;
    after = `&after=${encodeURIComponent(next)}`;
  }
}

const GROUPS: Readonly<Record<Me['role'], readonly string[]>> = {
  consumer: ['day', 'model', 'key'],
  provider: ['day', 'model', 'provider'],
  operator: ['day', 'model', 'user', 'project', 'provider', 'key'],
};

export function UsagePage({ me }: { me: Me }) {
  const [group, setGroup] = useState('model');
  const [days, dayAgain] = useLoad((signal) => totalsBy('day', signal), []);
  const [totals, again] = useLoad((signal) => totalsBy(group, signal), [group]);
  return (
    <>
      <h1>Usage</h1>
      <p class="quiet">The last 30 days, UTC.</p>
      <Show of={days} retry={dayAgain}>
        {(data) => <Days data={data} />}
      </Show>
      <Field label="By">
        {(id) => (
          <select id={id} value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
            {GROUPS[me.role].map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Show of={totals} retry={again}>
        {(data) => (data.length === 0 ? <Empty>Nothing was used yet.</Empty> : <Totals data={data} group={group} />)}
      </Show>
    </>
  );
}

/** At least a month, so that a first day is not stretched over a year. */
function lastDays(from: number, to: number): [number, number] {
  return [Math.min(from, to - 29 * 86_400), to + 43_200];
}

function Days({ data }: { data: readonly Usage[] }) {
  const [times, lines] = useMemo(() => {
    const sorted = [...data].sort((a, b) => name(a, 'day').localeCompare(name(b, 'day')));
    const read = { label: 'read', values: sorted.map(({ prompt_tokens = 0 }) => prompt_tokens) };
    const written = { label: 'written', values: sorted.map(({ completion_tokens = 0 }) => completion_tokens) };
    return [sorted.map((one) => Date.parse(name(one, 'day')) / 1000), [read, written]];
  }, [data]);
  if (data.length === 0) return null;
  return <Plot title="Tokens" about={plural(times.length, 'day')} times={times} lines={lines} range={lastDays} />;
}

function name(one: Usage, group: string): string {
  const value = one[group];
  return typeof value === 'string' ? value : '–';
}

function Totals({ data, group }: { data: readonly Usage[]; group: string }) {
  return (
    <>
      <Wide label={`Usage by ${group}`}>
        <table>
          <thead>
            <tr>
              <th>{group}</th>
              <th class="n">Requests</th>
              <th class="n">Failed</th>
              <th class="n">Tokens read</th>
              <th class="n">Tokens written</th>
              <th class="n">First token</th>
              <th class="n">Whole answer</th>
            </tr>
          </thead>
          <tbody>
            {data.map((one) => (
              <tr key={name(one, group)}>
                <th scope="row">{name(one, group)}</th>
                <td class="n">{count(one.requests)}</td>
                <td class="n">{count(one.failed ?? 0)}</td>
                <td class="n">{count(one.prompt_tokens ?? 0)}</td>
                <td class="n">{count(one.completion_tokens ?? 0)}</td>
                <td class="n">{milliseconds(one.mean_first_token_ms ?? 0)}</td>
                <td class="n">{milliseconds(one.mean_total_ms ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <p>
        <a class="button" download={`usage-by-${group}.csv`} href={csvUrl(data, group)}>
          CSV
        </a>
      </p>
    </>
  );
}

const COLUMNS = [
  'requests',
  'failed',
  'prompt_tokens',
  'completion_tokens',
  'mean_first_token_ms',
  'mean_total_ms',
] as const;

function csvUrl(data: readonly Usage[], group: string): string {
  return URL.createObjectURL(new Blob([usageCsv(data, group)], { type: 'text/csv' }));
}

/** RFC 4180. A cell that a spreadsheet would take for a formula is kept from being one. */
function usageCsv(data: readonly Usage[], group: string): string {
  const quoted = (text: string) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = data.map((one) => [quoted(name(one, group)), ...COLUMNS.map((column) => String(one[column] ?? 0))]);
  return [[group, ...COLUMNS], ...rows].map((row) => `${row.join(',')}\r\n`).join('');
}

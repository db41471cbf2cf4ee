import * as z from 'zod/mini';
import { readGateway } from '../../api/client.ts';
import { type Usage, usageSchema } from '../../api/schemas.ts';
import { t } from '../../texts/index.ts';

export const RANGES = ['day', 'week', 'month', 'quarter'] as const;
export type Range = (typeof RANGES)[number];

/** Days of a range, including today. The gateway's totals are by day: 24 hours are today and yesterday. */
export const DAYS: Readonly<Record<Range, number>> = { day: 2, week: 7, month: 30, quarter: 90 };

export type UsageGroup = keyof typeof t.usage.groups;

const DAY_MS = 86_400_000;

const totalsSchema = z.object({ data: z.array(usageSchema), next: z.nullable(z.string()) });

/** Reads all pages, because a sum without some of them would be wrong. */
export async function totalsBy(group: UsageGroup, range: Range, filter: string, signal: AbortSignal): Promise<Usage[]> {
  const from = new Date(Date.now() - (DAYS[range] - 1) * DAY_MS).toISOString().slice(0, 10);
  const all: Usage[] = [];
  for (let after = ''; ; ) {
    const path = `/admin/usage?group_by=${group}&from=${from}${filter}${after}`;
    const { data, next } = await readGateway(totalsSchema, path, signal);
    all.push(...data);
    if (next === null) return all;
    after = `&after=${encodeURIComponent(next)}`;
  }
}

export function nameOf(one: Usage, group: UsageGroup): string {
  const value = one[group];
  return typeof value === 'string' && value !== '' ? value : t.common.none;
}

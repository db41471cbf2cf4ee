/**
 * Reads one line of a trace: of this gateway's export, or of SwissAI's published serving trace
 * (eth-easl/swissai-serving-trace, OSDI'26). Pure.
 */
import * as z from 'zod';
import { type TraceLine, traceLineSchema } from './trace-stats.ts';

/**
 * A line of SwissAI's `trace.jsonl`. `qwen3-32b-buckets.jsonl` also has the last two members. A count of −1 means that
 * it is unknown.
 */
const publishedSchema = z.looseObject({
  created_at: z.string(),
  finished_at: z.string().nullish(),
  status: z.union([z.string(), z.number()]).nullish(),
  model: z.string(),
  reported_token_input: z.number().nullish(),
  reported_token_output: z.number().nullish(),
  token_count: z.number().nullish(),
  bucket_ids: z.array(z.union([z.number(), z.string()])).nullish(),
});

/** How the published trace writes that a time is unknown: PostgreSQL's NULL. */
const NO_TIME = '\\N';

/**
 * Returns undefined for a line of the published trace without a time of arrival.
 *
 * @throws Error if the line has neither format
 */
export function readTraceLine(text: string): TraceLine | undefined {
  const value: unknown = JSON.parse(text);
  const isPublished = typeof value === 'object' && value !== null && 'created_at' in value;
  return isPublished ? fromPublished(publishedSchema.parse(value)) : traceLineSchema.parse(value);
}

function fromPublished(line: z.infer<typeof publishedSchema>): TraceLine | undefined {
  if (line.created_at === NO_TIME) return undefined;
  const created = utc(line.created_at);
  const finished = line.finished_at;
  const total = finished == null || finished === NO_TIME ? null : Date.parse(utc(finished)) - Date.parse(created);
  const input = [line.reported_token_input, line.token_count].find((count) => count != null && count >= 0);
  return traceLineSchema.parse({
    timestamp: created,
    model: line.model,
    status: statusOf(line.status),
    input_tokens: input ?? 0,
    output_tokens: Math.max(0, line.reported_token_output ?? 0),
    first_token_ms: null,
    total_ms: total !== null && total >= 0 ? total : null,
    prefix_buckets: line.bucket_ids?.map(String) ?? null,
  });
}

/** Returns a time in ISO 8601 with `T` and a time zone; UTC if the file has none. */
function utc(text: string): string {
  const iso = text
    .trim()
    .replace(' ', 'T')
    .replace(/([+-]\d\d)(\d\d)?$/, (zone, hours, minutes) =>
      zone.includes(':') ? zone : `${hours}:${minutes ?? '00'}`,
    );
  return /(Z|[+-]\d\d:\d\d)$/.test(iso) ? iso : `${iso}Z`;
}

function statusOf(status: string | number | null | undefined): number | null {
  if (status == null) return null;
  if (typeof status === 'number') return status;
  if (/^\d{3}$/.test(status)) return Number(status);
  if (/^(ok|success|succeeded|completed?|default)$/i.test(status)) return 200;
  return /error|fail/i.test(status) ? 500 : null;
}

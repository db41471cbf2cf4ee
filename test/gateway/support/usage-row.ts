/** A usage record, as an attempt of a small chat leaves it. */
import type { UsageRow } from '../../../gateway/usage/usage-row.ts';

export const AT = Date.parse('2026-11-20T16:20:00Z');

export function usageRow(stream: number, more: Partial<UsageRow> = {}): UsageRow {
  return {
    session: 'a'.repeat(26),
    stream,
    at: AT,
    request: `r${stream}`,
    attempt: 1,
    provider: 'eth',
    key: 'key_1',
    user: '',
    project: '',
    model: 'm',
    endpoint: 1,
    streamed: true,
    status: 200,
    prompt: 10,
    completion: 5,
    cached: 1,
    reasoning: 2,
    firstMs: 100,
    totalMs: 1_000,
    aborted: false,
    estimated: false,
    complete: true,
    bytes: 50,
    traced: false,
    ...more,
  };
}

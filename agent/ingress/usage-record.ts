import { PROVIDER_ID_PATTERN } from '../../shared/routing/trust.ts';
import { type IngressUsage, TOKENS_MAX } from '../../shared/usage/ingress-usage.ts';
import type { Course, UsageRecord } from '../../shared/usage/usage-record.ts';

/** As a gateway stores it; `provider` of the session that served, where the registry still knows it. */
export function ingressUsage(record: UsageRecord, provider: string | undefined): IngressUsage {
  return {
    request_id: record.requestId,
    attempt: record.attempt,
    model: record.receipt,
    session: record.session,
    ...(provider !== undefined && PROVIDER_ID_PATTERN.test(provider) ? { provider } : {}),
    prompt_tokens: tokens(record.prompt),
    completion_tokens: tokens(record.completion),
    cached_tokens: tokens(record.cached),
    reasoning_tokens: tokens(record.reasoning),
    estimated: record.estimated,
    complete: record.complete,
    aborted: record.aborted,
    answer_bytes: record.answerBytes,
    ...(record.course === undefined ? {} : { course: courseOf(record.course) }),
    at: record.at,
  };
}

/** An ingress that has forgotten an attempt has no course of it: what it has is known. */
function courseOf({ endpoint, streamed, status, firstMs, totalMs }: Course) {
  const [first_ms, total_ms] = [Math.round(firstMs ?? 0), Math.round(totalMs ?? 0)];
  return { endpoint, streamed, status: status ?? 0, first_ms, total_ms };
}

function tokens(said: number): number {
  return Math.min(TOKENS_MAX, said);
}

import type { IngressUsage } from '../../shared/asking/ingress-usage.ts';
import type { UsageRecord } from '../../shared/asking/settlement.ts';

/** As a gateway stores it; `provider` of the session that served, where the registry still knows it. */
export function ingressUsage(record: UsageRecord, provider: string | undefined): IngressUsage {
  return {
    request_id: record.requestId,
    attempt: record.attempt,
    model: record.receipt,
    session: record.session,
    ...(provider === undefined ? {} : { provider }),
    prompt_tokens: record.prompt,
    completion_tokens: record.completion,
    cached_tokens: record.cached,
    reasoning_tokens: record.reasoning,
    estimated: record.estimated,
    complete: record.complete,
    aborted: record.aborted,
    answer_bytes: record.answerBytes,
    at: record.at,
  };
}

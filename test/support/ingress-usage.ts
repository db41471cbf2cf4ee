import type { IngressUsage } from '../../shared/usage/ingress-usage.ts';

/** The usage of an agent's ingress for its n-th request, of n tokens. */
export function ingressUsage(n: number, more: Partial<IngressUsage> = {}): IngressUsage {
  return {
    request_id: `request-${n}`,
    attempt: 1,
    model: 'm',
    session: 'a'.repeat(26),
    prompt_tokens: 3,
    completion_tokens: n,
    cached_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
    complete: true,
    aborted: false,
    answer_bytes: 100,
    at: Date.now() - 60_000 + n,
    ...more,
  };
}

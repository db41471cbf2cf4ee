/** Where one request to the ingress may be sent. */

import { AttemptError } from '../../shared/attempts/attempt-error.ts';
import type { ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { routedRequest } from '../../shared/proxy/policy-input.ts';
import type { Route } from '../../shared/proxy/proxy-host.ts';
import { readRequirements } from '../../shared/proxy/read-requirements.ts';
import type { NodeIndex } from '../../shared/routing/node-index.ts';
import { RETRIES_MAX } from '../../shared/routing/retry-policy.ts';
import { isTrusted, requireProviderList, type Trust, trustsNobody } from '../../shared/routing/trusted-providers.ts';
import type { IngressQueues } from './ingress-queues.ts';
import type { PolicyFor } from './routing-policies.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
const TRUST_METADATA = 'otela_trusted_providers';

/** Receipt of attempts that no client requested; their usage is not recorded. */
export const NO_RECEIPT = '';

export interface RouteOptions {
  nodes: NodeIndex;
  queues: Pick<IngressQueues, 'longestWait'>;
  policyFor: PolicyFor;
  /** @param lists provider lists of the request */
  trust(lists: readonly (readonly string[])[]): Trust;
}

interface Headers {
  header(name: string): string | null | undefined;
}

/** @throws ApiError 400 */
export function resolveIngressRoute(request: Headers, parsed: ParsedRequest, options: RouteOptions): Route {
  const header = (name: string) => request.header(name);
  const trust = options.trust(requestedProviders(request, parsed.metadata));
  const asked = routedRequest(header, parsed, parsed.model, '');
  const policy = options.policyFor(asked);
  return {
    request: asked,
    fallbacks: [],
    demand: readRequirements(header, parsed.metadata),
    policyFor: () => policy,
    nodes: options.nodes,
    trust,
    requireTrust: () => requireTrust(trust),
    expects: () => false,
    retriesMax: RETRIES_MAX,
    timeoutsFor: () => undefined,
    receiptFor: (model) => model,
    unpaidReceipt: () => NO_RECEIPT,
    waitMs: options.queues.longestWait(parsed.streaming),
    restartGraceMs: options.queues.longestWait(true),
    resumes: false,
    // If a node refused the request, the client gets the node's message immediately, which is more useful than a wait.
    mayWait: ({ cause }) => !(cause instanceof AttemptError && cause.code === 'refused'),
  };
}

function requireTrust(trust: Trust): void {
  if (!trustsNobody(trust)) return;
  const message = 'No provider is trusted by both this ingress (--trust) and this request.';
  throw new ApiError('no_trusted_provider', message);
}

/**
 * The provider lists of the header and of the body's `metadata`. If both are given, both apply.
 * @throws ApiError 400
 */
function requestedProviders(request: Headers, metadata: Readonly<Record<string, string>>): string[][] {
  const said: [string, string | undefined][] = [
    [TRUST_HEADER, request.header(TRUST_HEADER) ?? undefined],
    [`metadata.${TRUST_METADATA}`, metadata[TRUST_METADATA]],
  ];
  return said.flatMap(([param, text]) => (text === undefined ? [] : [requireProviderList(text, param)]));
}

/** The error for a request whose model is served only by nodes that the request may not use. */
export function noTrustedNodeError({ nodes, trust, request: { model } }: Route): ApiError {
  const { ready = [], suspected = [] } = nodes.model(model) ?? {};
  const serving = [...ready, ...suspected];
  if (serving.length > 0 && !serving.some((entry) => isTrusted(trust, entry))) {
    const message = `Only nodes of providers that this ingress does not trust (--trust) serve '${model}' now.`;
    return new ApiError('no_capacity', message, { param: 'model' });
  }
  return new ApiError('no_capacity', `No node that may receive this request serves '${model}' now; try again shortly.`);
}

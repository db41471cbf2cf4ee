/** What one request to the ingress is routed by, and why there may be nobody to ask. */
import type { IncomingHttpHeaders } from 'node:http';
import { ApiError } from '../../shared/openai/errors.ts';
import { readDemand } from '../../shared/proxy/demand.ts';
import { PRIORITY_HEADER, readPriority, routedRequest } from '../../shared/proxy/routed-request.ts';
import { type Question, unmet } from '../../shared/routing/choose.ts';
import type { Priority } from '../../shared/routing/fair-queue.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import { isTrusted, readProviderList, scopeOf, type Trust, trustsNobody } from '../../shared/routing/trust.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import { noCapacity } from './hand-over.ts';
import type { PolicyFor } from './policies.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
const TRUST_METADATA = 'otela_trusted_providers';

interface Asker {
  headers: IncomingHttpHeaders;
  intake: ParsedRequest;
  /** `lists`: those that the request brings. */
  trust(lists: readonly (readonly string[])[]): Trust;
  policyFor: PolicyFor;
  isAvoided(): Question['isAvoided'];
  among: Question['among'];
}

export interface Route {
  trust: Trust;
  priority: Priority;
  /** All that a choice is made by, at this moment. */
  question(): Question;
  /** Names the nodes that it may go to. */
  scope(): string;
}

/** @throws ApiError 400, 403 */
export function routeOf({ headers, intake, trust: decide, policyFor, isAvoided, among }: Asker): Route {
  const header = (name: string) => headers[name]?.toString();
  const demand = readDemand(header, intake.metadata);
  const trust = decide(requestedProviders(headers, intake.metadata));
  if (trustsNobody(trust)) {
    throw new ApiError(
      'no_trusted_provider',
      'No provider is trusted by this ingress (--trust) and this request alike.',
    );
  }
  const priority = readPriority(header(PRIORITY_HEADER));
  const request = routedRequest(header, intake, intake.model, '');
  const policy = policyFor(request);
  const chosenBy = { request, fallbacks: [], trust, demand, policyFor: () => policy, among };
  const fixed = { ...chosenBy, lostLatelyMs: RESUME_WINDOW_MS, random: Math.random };
  return {
    trust,
    priority,
    question: () => ({ ...fixed, isAvoided: isAvoided(), now: Date.now() }),
    scope: () => `${scopeOf(trust)} ${demand.words}`,
  };
}

/** Lists of the header and of the body's `metadata`; given both, both hold. @throws ApiError 400 */
function requestedProviders(headers: IncomingHttpHeaders, metadata: Readonly<Record<string, string>>): string[][] {
  const said: [string, string | undefined][] = [
    [TRUST_HEADER, headers[TRUST_HEADER]?.toString()],
    [`metadata.${TRUST_METADATA}`, metadata[TRUST_METADATA]],
  ];
  return said.flatMap(([param, text]) => (text === undefined ? [] : [readProviders(text, param)]));
}

function readProviders(text: string, param: string): string[] {
  const list = readProviderList(text);
  if (list !== undefined) return list;
  const message = `${param} must be a list of at most 64 provider ids, as in "eth, psi@peer".`;
  throw new ApiError('unknown_provider', message, { param });
}

/** Why there is nobody to ask. */
export function nobody(index: NodeIndex, question: Question): ApiError {
  const { request, trust } = question;
  const { model } = request;
  const instead = unmet(index, question);
  if (instead !== undefined) {
    const message = `No node that may be asked meets what this request requires: ${instead}.`;
    return new ApiError('requirement_not_met', message, { param: 'x-otela-require' });
  }
  const known = index.model(model);
  if (known === undefined)
    return new ApiError('model_not_found', `The model '${model}' does not exist here.`, { param: 'model' });
  const serving = [...known.ready, ...known.suspected];
  if (serving.length > 0 && !serving.some((entry) => isTrusted(trust, entry))) {
    const message = `Only nodes of providers that are not trusted here (--trust) serve '${model}' at this moment.`;
    return new ApiError('no_capacity', message, { param: 'model' });
  }
  return noCapacity(model);
}

/**
 * `GET /v1/otela/seal?model=M`: the nodes that open sealed requests for a model, in the order in which a request would
 * now be sent to them.
 */

import { opaqueFields, type ParsedRequest } from '../attempts/parsed-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import { endpointById } from '../openai/endpoints.ts';
import type { Candidate } from '../routing/candidates.ts';
import { chooseNode } from '../routing/choose-node.ts';
import { ENVELOPES_MAX } from '../seal/request-binding.ts';
import type { SealCandidate, SealCandidates } from '../seal/seal-candidates.ts';
import { filter, routingQuery } from './filter-nodes.ts';
import type { Host, HostClock, Route } from './proxy-host.ts';
import { MODEL_MAX_CHARS } from './read-body.ts';

/** Number of seconds for which a client may use the answer. */
export const SEAL_MAX_AGE_S = 30;

/** A request that names only the model. @throws ApiError 400 */
export function sealCandidatesRequest(model: string | null | undefined): ParsedRequest {
  const chat = endpointById(1);
  if (!model || model.length > MODEL_MAX_CHARS || chat === undefined)
    throw new ApiError('invalid_request', `model must name a model in at most ${MODEL_MAX_CHARS} characters.`, {
      param: 'model',
    });
  const body = { kind: 'kept', bytes: new Uint8Array(0) } as const;
  // This request is not sent to a node, so the position of the model's name is not used. The client writes the model's
  // canonical name into its request before it seals the request.
  const named = { unseen: false, modelAt: { start: 0, end: 0 } };
  return { ...opaqueFields(chat, model, undefined), ...named, body, release: () => {} };
}

/**
 * @param providers the providers that the client trusts; empty: all
 * @throws ApiError as for an unsealed request
 */
export function sealCandidates(
  asked: Route,
  host: Pick<Host<never>, 'clock' | 'refusal'>,
  providers: readonly string[],
): SealCandidates {
  const route = { ...asked, fallbacks: [] };
  const { model } = route.request;
  filter(route, { clientRequestId: '', name: '', startedAt: 0 }, host);
  return { object: 'list', model, data: inOrder(route, host.clock, new Set(providers)) };
}

function inOrder(
  route: Route,
  clock: Pick<HostClock, 'now' | 'random'>,
  providers: ReadonlySet<string>,
): SealCandidate[] {
  const now = clock.now() / 1000;
  const only = ({ sealKid, provider }: Pick<Candidate, 'sealKid' | 'provider'>) =>
    sealKid !== undefined && (providers.size === 0 || providers.has(provider));
  const question = { ...routingQuery(route, clock), only };
  const tried = new Set<string>();
  const data: SealCandidate[] = [];
  while (data.length < ENVELOPES_MAX) {
    const found = chooseNode(route.nodes, question, tried);
    if (found === undefined) break;
    const { session, provider } = found.node;
    tried.add(session);
    const seal = route.nodes.get(session)?.seal;
    if (seal !== undefined && seal.until > now) data.push({ session, provider, ...seal });
  }
  return data;
}

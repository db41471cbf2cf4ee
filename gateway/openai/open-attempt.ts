/** Opens one attempt at a session: builds the request for its tunnel object and waits for the response's head. */

import type { AttemptRequest } from '../../shared/attempts/attempt-request.ts';
import { openFrameFields } from '../../shared/attempts/dispatch-context.ts';
import { attemptBody, bodyFailure, type ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import type { ResponseStream } from '../../shared/attempts/started-response.ts';
import { type BoundedRequest, tokenBound } from '../../shared/attempts/token-bound.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { AttemptContext } from '../../shared/proxy/proxy-host.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import { withPayerProject } from '../../shared/usage/readable-receipt.ts';
import { signOpeningProof } from '../accounts/attempt-opening-proof.ts';
import { installationSecret, knownInstallationSecret } from '../accounts/installation-secret.ts';
import { takesBudget } from '../accounts/reasoning-budget.ts';
import type { RequestScope } from '../tunnel/call/call-tunnel.ts';
import type { GatewayRoute, ModelCaller } from './resolve-route.ts';
import { TunnelResponse } from './tunnel-response.ts';

interface AttemptScope extends RequestScope {
  client: RequestScope['client'] & { readonly disconnected: boolean };
  /** True if the response may be offloaded. */
  offloads: boolean;
}

/** @throws AttemptError if no engine's head arrived */
export function openAttempt(attempt: AttemptContext<ModelCaller>, scope: AttemptScope): Promise<ResponseStream> {
  const { parsed } = attempt.dispatch;
  const body = attemptBody(parsed);
  return TunnelResponse.open({
    scope,
    session: attempt.choice.node.session,
    open: requestOf(attempt, scope),
    body,
    claimBody: parsed.body.kind === 'opaque' ? null : body,
    clientDisconnected: () => scope.client.disconnected || bodyFailure(parsed) !== undefined,
  });
}

function requestOf(attempt: AttemptContext<ModelCaller>, scope: AttemptScope): AttemptRequest {
  const { choice, plan, dispatch, caller, waitedMs, continues } = attempt;
  const { view, reasoningBudget } = attempt.route as GatewayRoute;
  const entry = view.nodes.get(choice.node.session);
  const budget = entry !== undefined && takesBudget(entry) ? reasoningBudget : undefined;
  const context = entry?.models.find(({ id }) => id === choice.model)?.context_length;
  const fields = openFrameFields(dispatch, plan.number, plan.acceptMs, choice.model, budget);
  const { projectId } = caller.account;
  const isPeer = entry !== undefined && entry.issuer !== LOCAL_ISSUER;
  const open: AttemptRequest = {
    ...fields,
    ...(isPeer && projectId !== undefined && { receipt: withPayerProject(fields.receipt, projectId) }),
    waitedMs,
    ...(plan.movable && { movable: true }),
    ...(plan.moved && { moved: true }),
    ...(continues && { continues }),
    ...(entry !== undefined && { gpus: entry.hardware.gpus.length }),
    ...(caller.account.prefixes && !caller.untracked && { prefixes: true }),
    ...(attempt.offloads && scope.offloads && { offload: true }),
    bound: tokenBound({ ...bodyFacts(dispatch.parsed, dispatch.endpoint), endpoint: dispatch.endpoint }, context),
  };
  return proven(open, choice.node.session, scope);
}

/** The prompt of a stored response is not in the request for it, so its length is unknown. */
function bodyFacts({ body, sampling }: ParsedRequest, endpoint: Endpoint): Omit<BoundedRequest, 'endpoint'> {
  if (endpoint.body === 'none') return { body: { kind: 'opaque', length: undefined } };
  return sampling === undefined ? { body } : { body, sampling };
}

/** Adds an opening proof, with which the node can report usage even if this gateway forgets the attempt. */
function proven(open: AttemptRequest, session: string, { env, ctx }: AttemptScope): AttemptRequest {
  const secret = knownInstallationSecret();
  if (secret === undefined || open.bound === undefined) {
    // An isolate that has not read a key from D1 yet does not know the secret. Its request then uses the operator's key
    // from the environment: it does not wait for D1, and its attempt has no proof.
    ctx.waitUntil(installationSecret(env).then(ignore, ignore));
    return open;
  }
  const { requestId, attempt, receipt, endpoint, streaming: streamed, bound } = open;
  const opening = { session, requestId, attempt, receipt, endpoint, streamed, bound };
  return { ...open, proof: signOpeningProof(secret, opening, Date.now()) };
}

function ignore(): void {}

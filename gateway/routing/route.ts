/** What one request is routed by: what its headers and body say, and what the operator set for its model and its key. */

import { ApiError } from '../../shared/openai/errors.ts';
import { readDemand } from '../../shared/proxy/demand.ts';
import { routedRequest } from '../../shared/proxy/routed-request.ts';
import type { Question } from '../../shared/routing/choose.ts';
import { unmet } from '../../shared/routing/choose.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Account } from '../accounts/account.ts';
import type { Settings } from '../accounts/settings.ts';
import type { HttpRequest } from '../http.ts';
import type { Chain } from './alias.ts';
import { Policies } from './policies.ts';

/** Of this isolate. */
const policies = new Policies();

export type Route = Pick<Question, 'request' | 'fallbacks' | 'demand' | 'policyFor'>;

/** @throws ApiError 400 invalid_requirement */
export function routeOf(
  request: HttpRequest,
  intake: ParsedRequest,
  { model, fallbacks }: Chain,
  account: Account,
  settings: Settings,
): Route {
  const header = (name: string) => request.headers.get(name);
  const asked = routedRequest(header, intake, model, account.projectId ?? `key ${account.keyId}`);
  const policyFor = (served: string) => policies.for(settings, account, asked, served);
  return { request: asked, fallbacks, demand: readDemand(header, intake.metadata), policyFor };
}

/** All that a choice is made by, at this moment. */
export function questionOf(route: Route, trust: Trust, more: Pick<Question, 'isAvoided' | 'among'> = {}): Question {
  return { ...route, trust, ...more, lostLatelyMs: RESUME_WINDOW_MS, now: Date.now(), random: Math.random };
}

/** @throws ApiError 412 where nodes serve the model and none has what is required: waiting would not change that */
export function requireMet(nodes: NodeIndex, route: Route, trust: Trust): void {
  if (route.demand.require.length === 0) return;
  const instead = unmet(nodes, questionOf(route, trust));
  if (instead === undefined) return;
  const message = `No node that may be asked meets what this request requires: ${instead}.`;
  throw new ApiError('requirement_not_met', message, { param: 'x-otela-require' });
}

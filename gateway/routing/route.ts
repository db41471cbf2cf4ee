/** What one request is routed by: what its headers and body say, and what the operator set for its model and its key. */

import { readDemand } from '../../shared/proxy/demand.ts';
import { routedRequest } from '../../shared/proxy/routed-request.ts';
import type { Question } from '../../shared/routing/choose.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import type { Account } from '../accounts/account.ts';
import type { Settings } from '../accounts/settings.ts';
import type { HttpRequest } from '../http.ts';
import type { Chain } from './alias.ts';
import { Policies } from './policies.ts';
import { kindAtArrival } from './request-kinds.ts';

/** Of this isolate. */
const policies = new Policies();

export type Route = Pick<Question, 'request' | 'fallbacks' | 'demand' | 'policyFor'>;

/** @throws ApiError 400 invalid_requirement */
export function routeOf(
  request: HttpRequest,
  parsed: ParsedRequest,
  { model, fallbacks }: Chain,
  account: Account,
  settings: Settings,
): Route {
  const header = (name: string) => request.headers.get(name);
  const plain = routedRequest(header, parsed, model, account.projectId ?? `key ${account.keyId}`);
  const kind = kindAtArrival(settings, plain, request, account.keyId);
  const asked = kind === undefined ? plain : { ...plain, kind };
  const policyFor = (served: string) => policies.for(settings, account, asked, served);
  return { request: asked, fallbacks, demand: readDemand(header, parsed.metadata), policyFor };
}

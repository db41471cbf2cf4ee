/** How many tokens an answer's reasoning may take: what the request asks for, and what its key and project allow at most. */

import { findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { BUDGET_KEY } from '../../shared/openai/reasoning.ts';
import type { NodeRequirements } from '../../shared/routing/candidates.ts';
import type { Requirement } from '../../shared/routing/requirements.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Account, AccountLimits } from './account.ts';

const HEADER = 'x-otela-reasoning-budget';
const TOKENS_MAX = 1_000_000;

/** A node whose engine takes such a limit says so: by what name. */
const LABEL = 'reasoning-budget';
/** What a node says whose models do not reason: every limit holds there. */
const NO_REASONING = 'none';

/** `unseen`: the gateway does not read the body, so it can write nothing into it. Undefined: no limit. @throws ApiError 400, 403 */
export function reasoningBudget(
  request: HttpRequest,
  { limits }: Pick<Account, 'limits'>,
  unseen: boolean,
): number | undefined {
  const asked = readHeader(request);
  const allowed = allowedTokens(limits);
  if (asked === undefined && allowed.length === 0) return undefined;
  if (unseen && asked !== undefined) {
    throw new ApiError('invalid_request', `${HEADER} needs the body to be looked into: leave x-otela-model out.`);
  }
  if (unseen) {
    const message = 'This key limits reasoning, so the body must be looked into: leave x-otela-model out.';
    throw new ApiError('permission_denied', message, { param: 'x-otela-model' });
  }
  return Math.min(asked ?? TOKENS_MAX, ...allowed);
}

function allowedTokens(limits: Account['limits']): number[] {
  return [limits?.key, limits?.user, limits?.project].flatMap((one) => one?.reasoning_tokens_per_request ?? []);
}

/**
 * What a request with a limit demands of a node: to hold it, where it can be written into the body, or to have no reasoning at all. Without
 * this the limit of a key would be skipped in silence. `writable`: the body has a place for it.
 */
export function budgetDemand(demand: NodeRequirements, writable: boolean): NodeRequirements {
  const values = writable ? [BUDGET_KEY, NO_REASONING] : [NO_REASONING];
  const one: Requirement = { key: 'reasoning_budget', operator: '=', values };
  return { ...demand, require: [...demand.require, one], words: `${demand.words} reasoning ${values.length}` };
}

/** Whether a node may have lines of a batch of this key. */
export function mayHaveLines(
  { limits }: Pick<Account, 'limits'>,
  endpoint: string,
  node: { labels: Readonly<Record<string, string>> },
): boolean {
  const found = findEndpoint('POST', endpoint);
  if (allowedTokens(limits).length === 0 || found === undefined || !('generates' in found) || !found.generates)
    return true;
  return (found.injectUsage && takesBudget(node)) || label(node) === NO_REASONING;
}

/** Of each line of a batch, at this node; undefined: no limit, or an engine that takes none. */
export function lineReasoningBudget(
  { limits }: Pick<Account, 'limits'>,
  endpoint: string,
  node: { labels: Readonly<Record<string, string>> },
): number | undefined {
  const allowed = allowedTokens(limits);
  const found = findEndpoint('POST', endpoint);
  const isTaken = found !== undefined && 'injectUsage' in found && found.injectUsage && takesBudget(node);
  return allowed.length > 0 && isTaken ? Math.min(...allowed) : undefined;
}

function readHeader(request: HttpRequest): number | undefined {
  const given = request.headers.get(HEADER);
  if (given === null) return undefined;
  if (/^\d{1,7}$/.test(given) && Number(given) <= TOKENS_MAX) return Number(given);
  throw new ApiError('invalid_request', `${HEADER} is a number of tokens, at most ${TOKENS_MAX}.`, { param: HEADER });
}

export function takesBudget(node: { labels: Readonly<Record<string, string>> }): boolean {
  return label(node) === BUDGET_KEY;
}

function label({ labels }: { labels: Readonly<Record<string, string>> }): string | undefined {
  return Object.hasOwn(labels, LABEL) ? labels[LABEL] : undefined;
}

/** Whether there is anything to be counted over several requests. */
export function isCounted({ key, user, project }: AccountLimits): boolean {
  return [key, user, project].some((one) =>
    Object.keys(one ?? {}).some((name) => name !== 'reasoning_tokens_per_request'),
  );
}

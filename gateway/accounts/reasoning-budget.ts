/**
 * Limits the reasoning tokens of a response, by the request's own bound and by the limits of its key, user and project.
 */

import { ApiError } from '../../shared/openai/api-errors.ts';
import { findEndpoint } from '../../shared/openai/endpoints.ts';
import { BUDGET_KEY } from '../../shared/openai/known-body-keys.ts';
import type { NodeRequirements } from '../../shared/routing/candidates.ts';
import type { Requirement } from '../../shared/routing/requirements.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Account, AccountLimits } from './account.ts';

const HEADER = 'x-otela-reasoning-budget';
const TOKENS_MAX = 1_000_000;

/** Label of a node whose engine supports a bound on reasoning tokens. The label's value is the parameter's name. */
const LABEL = 'reasoning-budget';
/** Value of the label on a node with models that do not reason: it satisfies every bound. */
const NO_REASONING = 'none';

/**
 * Returns the maximum reasoning tokens of a request; undefined: no maximum. `unseen`: the gateway does not read the
 * body, so it cannot write the maximum into the body.
 * @throws ApiError 400, 403
 */
export function reasoningBudget(
  request: HttpRequest,
  { limits }: Pick<Account, 'limits'>,
  unseen: boolean,
): number | undefined {
  const asked = readHeader(request);
  const allowed = allowedTokens(limits);
  if (asked === undefined && allowed.length === 0) return undefined;
  if (unseen && asked !== undefined) {
    throw new ApiError('invalid_request', `${HEADER} requires that the gateway reads the body: omit x-otela-model.`);
  }
  if (unseen) {
    const message = 'This key limits reasoning, so the gateway must read the body: omit x-otela-model.';
    throw new ApiError('permission_denied', message, { param: 'x-otela-model' });
  }
  return Math.min(asked ?? TOKENS_MAX, ...allowed);
}

function allowedTokens(limits: Account['limits']): number[] {
  return [limits?.key, limits?.user, limits?.project].flatMap((one) => one?.reasoning_tokens_per_request ?? []);
}

/**
 * Adds the requirement that the node applies the bound, or that its models do not reason. Other nodes would silently
 * exceed a key's limit. `writable`: the gateway can write the bound into the body. If false, only nodes that do not
 * reason are allowed.
 */
export function budgetDemand(demand: NodeRequirements, writable: boolean): NodeRequirements {
  const values = writable ? [BUDGET_KEY, NO_REASONING] : [NO_REASONING];
  const one: Requirement = { key: 'reasoning_budget', operator: '=', values };
  return { ...demand, require: [...demand.require, one], words: `${demand.words} reasoning ${values.length}` };
}

/** True if a node may process lines of this key's batches. */
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

/**
 * Returns the bound for each line of a batch on this node; undefined: no limit, or the engine does not support a bound.
 */
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
  throw new ApiError('invalid_request', `${HEADER} must be a number of tokens, at most ${TOKENS_MAX}.`, {
    param: HEADER,
  });
}

export function takesBudget(node: { labels: Readonly<Record<string, string>> }): boolean {
  return label(node) === BUDGET_KEY;
}

function label({ labels }: { labels: Readonly<Record<string, string>> }): string | undefined {
  return Object.hasOwn(labels, LABEL) ? labels[LABEL] : undefined;
}

/** True if at least one limit counts over several requests. */
export function isCounted({ key, user, project }: AccountLimits): boolean {
  return [key, user, project].some((one) =>
    Object.keys(one ?? {}).some((name) => name !== 'reasoning_tokens_per_request'),
  );
}

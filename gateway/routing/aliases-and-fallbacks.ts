/** Resolves the requested name to a model and its fallbacks. */

import type { ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { type Account, mayUseModel, requireModelAccess } from '../accounts/account.ts';
import { type GatewaySettings, settingsIndex, settingsOf } from '../accounts/gateway-settings.ts';
import { hasAccess, isRetired, requireListed } from '../accounts/model-access.ts';
import { limitsOfModel } from '../settings/limits-schema.ts';

export interface FallbackChain {
  /** The model that is tried first. */
  model: string;
  /** Models that are tried in this order if no node serves `model`. */
  fallbacks: readonly string[];
}

const NONE: readonly string[] = [];

/**
 * Returns the chain of a name. If the name is an alias of the operator, a key that may use the name may also use the
 * model. If the name is an alias of the key itself, the model must be on the key's list.
 * @throws ApiError 400 if the name must be replaced in a body that cannot be changed, 403 model_not_allowed, 404 as the
 * catalog decides
 */
export function fallbackChain(
  account: Account,
  settings: GatewaySettings,
  parsed: ParsedRequest,
  now: number,
): FallbackChain {
  const { model: name, unseen, modelAt, sealed, inUrl } = parsed;
  const isFixed = modelAt === undefined && inUrl !== true;
  const { routing } = account;
  const { model, own } = standsFor(account, settings, name);
  requireListed(settings, account, model, now);
  // A sealed body also contains the requested name. The node that opens the body refuses a request for another name.
  requireModelAccess(account, permitted(account, { name, model, own }), unseen && sealed === undefined);
  if (model !== name && isFixed) throw cannotRename(name, model);
  if (isFixed) return { model, fallbacks: NONE };
  const chain = routing.find(({ fallbacks }) => fallbacks !== undefined && Object.hasOwn(fallbacks, model));
  const listed = chain?.fallbacks?.[model] ?? settingsOf(settings, model).fallbacks ?? NONE;
  // A request counts only against the limits of its `model`, not against those of its fallbacks. So a key's own
  // fallbacks may not contain a model for which the account has separate limits: the key could bypass these limits.
  const follows = (next: string) =>
    next !== model &&
    !(chain !== undefined && hasOwnLimits(account, next)) &&
    mayUseModel(account, next) &&
    hasAccess(settings, account, next) &&
    !isRetired(settings, next, now);
  const fallbacks = listed.length === 0 ? NONE : listed.filter(follows);
  return { model, fallbacks };
}

/** True if this account has separate limits for the model. */
export function hasOwnLimits({ limits }: Pick<Account, 'limits'>, model: string): boolean {
  return [limits?.key, limits?.user, limits?.project].some((set) => limitsOfModel(set, model) !== undefined);
}

interface AliasTarget {
  model: string;
  /** True if the key or its project defines the alias, and not the operator. */
  own: boolean;
}

function standsFor({ routing }: Pick<Account, 'routing'>, settings: GatewaySettings, name: string): AliasTarget {
  const own = routing.find(({ aliases }) => aliases !== undefined && Object.hasOwn(aliases, name))?.aliases?.[name];
  return { model: own ?? settingsIndex(settings).aliases.get(name) ?? name, own: own !== undefined };
}

/**
 * Returns the name that must be on the key's list: a key's own alias could let any name stand for any model, but the
 * operator's aliases are trusted.
 */
function permitted(account: Account, { name, model, own }: AliasTarget & { name: string }): string {
  return own || (!mayUseModel(account, name) && mayUseModel(account, model)) ? model : name;
}

/** Yields the aliases that this account may use, with the models for which they stand. */
export function* aliasesOf(account: Account, settings: GatewaySettings): Generator<[string, string]> {
  const own = account.routing.flatMap(({ aliases = {} }) => Object.keys(aliases));
  for (const name of new Set([...own, ...settingsIndex(settings).aliases.keys()])) {
    const meaning = standsFor(account, settings, name);
    if (mayUseModel(account, permitted(account, { name, ...meaning }))) yield [name, meaning.model];
  }
}

/** Returns the error for a name that must be replaced in a body that was not parsed. */
function cannotRename(name: string, model: string): ApiError {
  const message = `'${name}' is an alias of '${model}', which the gateway cannot write into this body: name '${model}' instead.`;
  return new ApiError('invalid_request', message, { param: 'model' });
}

/** What a name of a model stands for, and which models come after it. */

import { ApiError } from '../../shared/openai/errors.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { type Account, mayUseModel, requireModelAccess } from '../accounts/account.ts';
import { hasAccess, isRetired, requireListed } from '../accounts/catalogue.ts';
import { limitsOfModel } from '../accounts/limits/limits.ts';
import { type GatewaySettings, settingsIndex, settingsOf } from '../accounts/settings.ts';

export interface FallbackChain {
  /** What is asked for. */
  model: string;
  /** What is asked for where no node serves that. */
  fallbacks: readonly string[];
}

const NONE: readonly string[] = [];

/**
 * A key that may use a name may use what the operator lets it stand for; what a key itself lets a name stand for must be on its own
 * list. @throws ApiError 400 where the body cannot be given another model's name, 403 model_not_allowed, 404 as the catalogue says
 */
export function fallbackChain(
  account: Account,
  settings: GatewaySettings,
  parsed: ParsedRequest,
  now: number,
): FallbackChain {
  const { model: name, unseen, modelAt, sealed } = parsed;
  const { routing } = account;
  const { model, own } = standsFor(account, settings, name);
  requireListed(settings, account, model, now);
  // A sealed body names the same model: the node that opens it refuses another one.
  requireModelAccess(account, permitted(account, { name, model, own }), unseen && sealed === undefined);
  if (model !== name && modelAt === undefined) throw cannotRename(name, model);
  if (modelAt === undefined) return { model, fallbacks: NONE };
  const chain = routing.find(({ fallbacks }) => fallbacks !== undefined && Object.hasOwn(fallbacks, model));
  const listed = chain?.fallbacks?.[model] ?? settingsOf(settings, model).fallbacks ?? NONE;
  // A request counts as the model that it means: a key's own word must not have one with limits answer as another.
  const follows = (next: string) =>
    next !== model &&
    !(chain !== undefined && hasOwnLimits(account, next)) &&
    mayUseModel(account, next) &&
    hasAccess(settings, account, next) &&
    !isRetired(settings, next, now);
  const fallbacks = listed.length === 0 ? NONE : listed.filter(follows);
  return { model, fallbacks };
}

/** The model is counted by itself for this account. */
export function hasOwnLimits({ limits }: Pick<Account, 'limits'>, model: string): boolean {
  return [limits?.key, limits?.user, limits?.project].some((set) => limitsOfModel(set, model) !== undefined);
}

interface Meaning {
  model: string;
  /** The key or its project says so, not the operator. */
  own: boolean;
}

function standsFor({ routing }: Pick<Account, 'routing'>, settings: GatewaySettings, name: string): Meaning {
  const own = routing.find(({ aliases }) => aliases !== undefined && Object.hasOwn(aliases, name))?.aliases?.[name];
  return { model: own ?? settingsIndex(settings).aliases.get(name) ?? name, own: own !== undefined };
}

/** Which name has to be on the key's list. A key's own word could let any name stand for any model; the operator's is to be trusted. */
function permitted(account: Account, { name, model, own }: Meaning & { name: string }): string {
  return own || (!mayUseModel(account, name) && mayUseModel(account, model)) ? model : name;
}

/** Other names that this account may use, with what they stand for. */
export function* aliasesOf(account: Account, settings: GatewaySettings): Generator<[string, string]> {
  const own = account.routing.flatMap(({ aliases = {} }) => Object.keys(aliases));
  for (const name of new Set([...own, ...settingsIndex(settings).aliases.keys()])) {
    const meaning = standsFor(account, settings, name);
    if (mayUseModel(account, permitted(account, { name, ...meaning }))) yield [name, meaning.model];
  }
}

/** An unread body is not rewritten. */
function cannotRename(name: string, model: string): ApiError {
  const message = `'${name}' stands for '${model}' here, which this request's body cannot be told: name that one.`;
  return new ApiError('invalid_request', message, { param: 'model' });
}

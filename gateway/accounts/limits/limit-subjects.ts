/** Decides which meters count a request, and which limits apply to each meter. */
import { EVERY_OTHER_MODEL, type Limits, limitsOfModel } from '../../settings/limits-schema.ts';

/** The key, user and model of a request. The user or the model is absent if no limit counts usage by it. */
export interface LimitSubject {
  keyId: string;
  userId?: string | undefined;
  model?: string | undefined;
}

export interface LimitSet extends LimitSubject {
  key: Limits | undefined;
  project: Limits | undefined;
  /** Limits that all keys of the user share, counted by the meter of `userId`. */
  user?: Limits | undefined;
}

export type LimitScope = 'project' | 'user' | 'key';

/**
 * Ids of meters: empty for the project, the key's id for a key, `user:…` for a user. If a meter counts one model, a
 * newline and the model follow. The id of a meter of an amount begins with its `prefix` in MONTH_AMOUNTS.
 */
export const PROJECT_METER = '';

export function userMeter(userId: string): string {
  return `user:${userId}`;
}

export function modelMeter(id: string, model: string): string {
  return `${id}\n${model}`;
}

/** Returns the ids of all meters of a request, whichever limits are set. */
export function meterIds({ keyId, userId, model }: LimitSubject): string[] {
  const ids = [PROJECT_METER, keyId, ...(userId === undefined ? [] : [userMeter(userId)])];
  return model === undefined ? ids : [...ids, ...ids.map((id) => modelMeter(id, model))];
}

/** One set of limits that applies to a request, and the meter that counts for it. */
interface LimitParty {
  scope: LimitScope;
  id: string;
  limits: Limits | undefined;
  model: string | undefined;
}

export function limitParties({ keyId, userId, model, key, project, user }: LimitSet): LimitParty[] {
  const parties: LimitParty[] = [
    { scope: 'project', id: PROJECT_METER, limits: project, model: undefined },
    { scope: 'key', id: keyId, limits: key, model: undefined },
  ];
  if (userId !== undefined) parties.push({ scope: 'user', id: userMeter(userId), limits: user, model: undefined });
  if (model === undefined) return parties;
  for (const { scope, id, limits } of [...parties]) {
    const ofModel = limitsOfModel(limits, model);
    if (ofModel !== undefined) parties.push({ scope, id: modelMeter(id, model), limits: ofModel, model });
  }
  return parties;
}

/** The tightest limit of tokens per minute; 0: there is none. */
export function tightestTokens(asked: LimitSet): number {
  const tightest = Math.min(...limitParties(asked).flatMap(({ limits }) => limits?.tokens_per_minute ?? []));
  return Number.isFinite(tightest) ? tightest : 0;
}

/** Returns the models that `limits` names, and also `asked` if the limit for all other models applies to it. */
export function limitedModels(
  limits: Limits | undefined,
  asked: string | undefined,
): [model: string, ofModel: Limits][] {
  const named = Object.entries(limits?.models ?? {}).filter(([model]) => model !== EVERY_OTHER_MODEL);
  const ofAsked =
    asked === undefined || named.some(([model]) => model === asked) ? undefined : limitsOfModel(limits, asked);
  return asked === undefined || ofAsked === undefined ? named : [...named, [asked, ofAsked]];
}

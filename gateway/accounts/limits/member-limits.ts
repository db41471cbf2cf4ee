/** Computes what a user may use in one project from the limits that operators and the project's leads set. Pure. */
import { EVERY_OTHER_MODEL, type Limits, limitsOfModel } from '../../settings/limits-schema.ts';

type ModelLimits = Omit<Limits, 'models'>;
type Name = keyof ModelLimits;

const NAMES = [
  'requests_per_minute',
  'tokens_per_minute',
  'concurrent_requests',
  'tokens_per_month',
  'gpu_seconds_per_month',
  'audio_seconds_per_month',
  'images_per_month',
  'reasoning_tokens_per_request',
] as const satisfies readonly Name[];

interface MemberLimits {
  /** Individual limits of the user, set by operators. Empty: no limits. */
  own: Limits | null;
  /** Limits of each user without individual limits, set by operators. */
  ofAll: Limits | undefined;
  /** Limits of the user in this project, set by the project's leads. */
  ofMember: Limits | null;
  project: Limits | null;
}

/**
 * Returns the limits that all keys of the user share in the project. If the project has a limit of some kind, a lead's
 * limit of this kind replaces the limit in `ofAll`: leads may distribute the amount that operators gave the project.
 * For other kinds, both the lead's limit and `ofAll` apply. `own` always applies, so a lead cannot widen it.
 */
export function personLimits({ own, ofAll, ofMember, project }: MemberLimits): Limits | undefined {
  if (ofMember === null) return own ?? ofAll;
  if (own !== null) return narrower(own, ofMember);
  const kept = { ...ofAll };
  for (const name of NAMES) if (ofMember[name] !== undefined && project?.[name] !== undefined) delete kept[name];
  return narrower(kept, ofMember);
}

/** Returns limits that satisfy both sets. */
function narrower(one: Limits, other: Limits): Limits {
  const named = [one, other].flatMap(({ models }) => Object.keys(models ?? {}));
  const models = [...new Set(named)].map((model) => [
    model,
    lower(limitsOfModel(one, model) ?? {}, limitsOfModel(other, model) ?? {}),
  ]);
  return { ...lower(one, other), ...(models.length > 0 && { models: Object.fromEntries(models) }) };
}

function lower(one: ModelLimits, other: ModelLimits): ModelLimits {
  return Object.fromEntries(
    NAMES.flatMap((name) => {
      const given = [one[name], other[name]].filter((value) => value !== undefined);
      return given.length === 0 ? [] : [[name, Math.min(...given)]];
    }),
  );
}

/** Finds the first of a member's limits that is above the project's limit. Returns its path and the project's value. */
export function limitAboveProject(
  limits: Limits,
  project: Limits | null,
): { path: string; allowed: number } | undefined {
  const parties: [prefix: string, limits: ModelLimits, bounds: (Limits | undefined)[]][] = [
    ['', limits, [project ?? undefined]],
    ...Object.entries(limits.models ?? {}).map(([model, ofModel]): [string, ModelLimits, (Limits | undefined)[]] => [
      `models.${model === EVERY_OTHER_MODEL ? '*' : model}.`,
      ofModel,
      [project ?? undefined, limitsOfModel(project ?? undefined, model)],
    ]),
  ];
  for (const [prefix, given, bounds] of parties)
    for (const name of NAMES) {
      const value = given[name];
      const allowed = Math.min(...bounds.flatMap((bound) => bound?.[name] ?? []));
      if (value !== undefined && value > allowed) return { path: `${prefix}${name}`, allowed };
    }
  return undefined;
}

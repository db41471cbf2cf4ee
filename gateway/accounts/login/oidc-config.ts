/**
 * Identity providers that an operator trusts, and the rights of their users here. Stored as a setting; client secrets
 * are in the environment.
 */
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { quoteForMessage } from '../../../shared/openai/quote-for-message.ts';
import { boundedRecord, secureUrlSchema } from '../../http/common-schemas.ts';
import { ROLES, type Role } from '../account-tables.ts';

const ISSUERS_MAX = 8;
const VALUES_MAX = 200;
/**
 * Maximum values of one claim. Large directories give a user some hundred groups, and each value is looked up at each
 * sign-in.
 */
const CLAIM_VALUES_MAX = 2_000;
const text = z.string().min(1).max(256);
const projectIdSchema = z.string().min(1).max(64);
/** A group's name as access lists contain it after `group:`. */
const groupSchema = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,59}$/, 'must consist of lower-case letters, digits, . _ and -');

const issuerSchema = z.strictObject({
  /** The issuer exactly as its tokens contain it, character by character. */
  issuer: secureUrlSchema,
  /** Name of the provider on the login page. */
  name: text,
  client_id: text,
  /** The `aud` of tokens that the API accepts; null: the API accepts no tokens of this provider. */
  audience: text.nullable().default(null),
  scope: z.string().max(512).default('openid profile email'),
  /**
   * Which users are admitted. `everybody`: all users that can log in at the issuer. `mapped`: users with a claim value
   * that is mapped below. `known`: users that already exist at this gateway.
   */
  admits: z.enum(['everybody', 'mapped', 'known']).default('known'),
  /** The claim that decides roles, for example `groups` or `realm_access.roles`; null: operators assign roles. */
  role_claim: text.nullable().default(null),
  roles: boundedRecord(
    text,
    z.strictObject({ role: z.enum(ROLES), provider: idSchema.optional() }),
    VALUES_MAX,
  ).default({}),
  project_claim: text.nullable().default(null),
  /**
   * Maps values of `project_claim` to projects. The first match is the user's home project; in the other matches the
   * user is a member.
   */
  projects: boundedRecord(text, projectIdSchema, VALUES_MAX).default({}),
  /** Maps values of `project_claim` to projects that the user leads. */
  leads: boundedRecord(text, projectIdSchema, VALUES_MAX).default({}),
  /**
   * A user's keys stop working if the provider has not confirmed the user for this many days, until the next login;
   * null: they keep working.
   */
  lapse_days: z.int().min(1).max(3_650).nullable().default(90),
  /**
   * Hours after which the provider is asked again whether it still knows a person, with the refresh token of the login.
   * If it does not, the person's keys stop working until the next login; null: it is not asked.
   */
  confirm_hours: z.int().min(1).max(8_760).nullable().default(null),
  /** The claim that contains groups for the access lists of models. */
  group_claim: text.nullable().default(null),
  /** Maps values of `group_claim` to names of groups. */
  groups: boundedRecord(text, groupSchema, VALUES_MAX).default({}),
});

export type OidcIssuer = z.infer<typeof issuerSchema>;
export const issuersSchema = z.array(issuerSchema).max(ISSUERS_MAX);

export type Claims = Readonly<Record<string, unknown>>;

export interface MappedProjects {
  own: string | undefined;
  /**
   * Projects in which the user is a member, and whether the user leads them. Contains the home project only if the user
   * leads it.
   */
  members: ReadonlyMap<string, { lead: boolean }>;
  /** All projects whose members this issuer's claims decide. */
  decided: ReadonlySet<string>;
}

/** A user's claims as this gateway understands them. */
export interface MappedClaims {
  /** The user's name; undefined: the claims do not contain it, which is usual for access tokens. */
  name: string | undefined;
  email: string | null | undefined;
  /** The user's role; undefined: the claims do not decide it. */
  role: Role | undefined;
  provider: string | undefined;
  /** The user's projects; undefined: the claims do not decide them. */
  projects: MappedProjects | undefined;
  /** The user's groups, sorted; undefined: the claims do not decide them. */
  groups: string[] | undefined;
  /** True if at least one value of the claims is mapped. */
  matches: boolean;
}

const NAME_MAX = 200;

/**
 * @param signIn true if a user signs in: a missing claim then means that there are no values. False if a program sent a
 * token: a missing claim then decides nothing.
 * @throws ApiError 403 if a configured claim is not a list of texts, or has too many values
 */
export function mapClaims(config: OidcIssuer, claims: Claims, signIn: boolean): MappedClaims {
  const roles = valuesOf(claims, config.role_claim).flatMap((value) => {
    const mapped = Object.hasOwn(config.roles, value) ? config.roles[value] : undefined;
    return mapped === undefined ? [] : [mapped];
  });
  const highest = roles.toSorted((a, b) => ROLES.indexOf(b.role) - ROLES.indexOf(a.role))[0];
  const projects = projectsOf(config, claims, signIn);
  const groups = valuesOf(claims, config.group_claim).flatMap((value) => named(config.groups, value) ?? []);
  const saysGroups = config.group_claim !== null && (signIn || hasClaim(claims, config.group_claim));
  const saysRole = config.role_claim !== null && (signIn || hasClaim(claims, config.role_claim));
  const claimedRole = saysRole ? (highest?.role ?? 'consumer') : undefined;
  return {
    name: nameOf(claims),
    email: emailOf(claims),
    role: claimedRole,
    provider: highest?.provider,
    projects,
    groups: saysGroups ? [...new Set(groups)].toSorted() : undefined,
    matches: highest !== undefined || groups.length > 0 || projects?.own !== undefined || !!projects?.members.size,
  };
}

function projectsOf(config: OidcIssuer, claims: Claims, signIn: boolean): MappedProjects | undefined {
  const { project_claim: claim, projects, leads } = config;
  if (claim === null || !(signIn || hasClaim(claims, claim))) return undefined;
  const values = valuesOf(claims, claim);
  const [own, ...others] = values.flatMap((value) => named(projects, value) ?? []);
  const members = new Map(others.filter((id) => id !== own).map((id) => [id, { lead: false }]));
  for (const id of values.flatMap((value) => named(leads, value) ?? [])) members.set(id, { lead: true });
  return { own, members, decided: new Set([...Object.values(projects), ...Object.values(leads)]) };
}

/** Maps a value. The value comes from the provider, so it may be `__proto__`. */
function named(map: Readonly<Record<string, string>>, value: string): string | undefined {
  return Object.hasOwn(map, value) ? map[value] : undefined;
}

function emailOf({ email }: Claims): string | null | undefined {
  if (email === undefined) return undefined;
  return typeof email === 'string' && email.length <= 320 ? email : null;
}

function nameOf({ name, preferred_username, email }: Claims): string | undefined {
  const given = [name, preferred_username, email].find((one) => typeof one === 'string');
  return typeof given === 'string' ? displayName(given) : undefined;
}

/** Returns a user's name as it is shown: one line, without characters that affect a terminal. */
export function displayName(text: string): string {
  const plain = text
    .replace(/[\p{Cc}\u2028\u2029]/gu, ' ')
    // Invisible characters, and characters that change the direction of text, can make one name look like another.
    // Joiners are part of letters in some scripts, so they stay.
    .replace(/(?!\u200c|\u200d|\ufe0f)[\p{Cf}\p{DI}\u2800]/gu, '')
    .trim()
    .slice(0, NAME_MAX);
  return plain === '' ? 'somebody' : plain;
}

/** Returns the texts at a path of the claims, which may be one text or a list. */
function valuesOf(claims: Claims, path: string | null): string[] {
  if (path === null) return [];
  const found = claimAt(claims, path) ?? [];
  const values: unknown[] = Array.isArray(found) ? found : [found];
  if (values.length > CLAIM_VALUES_MAX)
    throw wrongClaim(path, `has ${values.length} values, but at most ${CLAIM_VALUES_MAX} are allowed`);
  // If the malformed claim were ignored, the user would lose rights.
  if (!values.every((value) => typeof value === 'string')) throw wrongClaim(path, 'is not a list of strings');
  return values;
}

function wrongClaim(path: string, what: string): ApiError {
  const message = `The claim "${quoteForMessage(path)}" of your identity provider ${what}. Ask an operator of this gateway.`;
  return new ApiError('permission_denied', message);
}

function hasClaim(claims: Claims, path: string): boolean {
  return claimAt(claims, path) !== undefined;
}

function claimAt(claims: Claims, path: string): unknown {
  // Some providers have claims whose names contain dots.
  return Object.hasOwn(claims, path) ? claims[path] : path.split('.').reduce(memberOf, claims as unknown);
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return Object.entries(value).find(([key]) => key === name)?.[1];
}

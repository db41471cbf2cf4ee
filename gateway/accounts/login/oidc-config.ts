/** Identity providers that an operator trusts: who their people are here. Kept as a setting; secrets are in the environment. */
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node.ts';
import { ApiError } from '../../../shared/openai/errors.ts';
import { quoteForMessage } from '../../../shared/openai/quote-for-message.ts';
import { boundedRecord, secureUrlSchema } from '../../http/schema-parts.ts';
import { ROLES, type Role } from '../schema.ts';

const ISSUERS_MAX = 8;
const VALUES_MAX = 200;
/** Values of one claim of a person. Larger directories give their people some hundred groups; each is looked up at each sign-in. */
const CLAIM_VALUES_MAX = 2_000;
const text = z.string().min(1).max(256);
const projectIdSchema = z.string().min(1).max(64);
/** As access lists have it behind `group:`, so that no group is taken for a key, a user or a project. */
export const groupSchema = z.string().regex(/^[a-z0-9][a-z0-9._-]{0,59}$/, 'lower-case letters, digits, . _ and -');

const issuerSchema = z.strictObject({
  /** As in its tokens, character by character. */
  issuer: secureUrlSchema,
  /** What the login page calls it. */
  name: text,
  client_id: text,
  /** `aud` of tokens that are good for the API; null: none are. */
  audience: text.nullable().default(null),
  scope: z.string().max(512).default('openid profile email'),
  /** `everybody`: all persons who can log in at the issuer. `mapped`: persons with a value that is mapped below. `known`: users. */
  admits: z.enum(['everybody', 'mapped', 'known']).default('known'),
  /** The claim that says what a person is, e.g. `groups` or `realm_access.roles`; without it roles are the operator's business. */
  role_claim: text.nullable().default(null),
  roles: boundedRecord(
    text,
    z.strictObject({ role: z.enum(ROLES), provider: idSchema.optional() }),
    VALUES_MAX,
  ).default({}),
  project_claim: text.nullable().default(null),
  /** Values of that claim to projects: the first that fits is the person's own, in the others they are members. */
  projects: boundedRecord(text, projectIdSchema, VALUES_MAX).default({}),
  /** Values of that claim to projects that the person leads. */
  leads: boundedRecord(text, projectIdSchema, VALUES_MAX).default({}),
  /** Keys of a person for whom the provider has not vouched for so many days rest until the next login; null: they go on. */
  lapse_days: z.int().min(1).max(3_650).nullable().default(90),
  /** The claim whose values are groups of access lists of models. */
  group_claim: text.nullable().default(null),
  /** Values of that claim to names of groups. */
  groups: boundedRecord(text, groupSchema, VALUES_MAX).default({}),
});

export type OidcIssuer = z.infer<typeof issuerSchema>;
export const issuersSchema = z.array(issuerSchema).max(ISSUERS_MAX);

export type Claims = Readonly<Record<string, unknown>>;

export interface MappedProjects {
  own: string | undefined;
  /** The other projects of the person, with whether they lead them; their own where they lead it. */
  members: ReadonlyMap<string, { lead: boolean }>;
  /** The projects that this issuer's claims decide over. */
  decided: ReadonlySet<string>;
}

/** What a person's claims are mapped to. */
export interface MappedClaims {
  /** Undefined: not told by claims; access tokens rarely say. */
  name: string | undefined;
  email: string | null | undefined;
  /** Undefined: not told by claims. */
  role: Role | undefined;
  provider: string | undefined;
  /** Undefined: claims say nothing of projects. */
  projects: MappedProjects | undefined;
  /** Sorted. Undefined: claims say nothing of groups. */
  groups: string[] | undefined;
  /** A value of their claims is mapped. */
  matches: boolean;
}

const NAME_MAX = 200;

/**
 * @param signIn a person signs in: a claim that is not there has no values. A token of a program that lacks it says nothing.
 * @throws ApiError 403 where a claim that is asked for is no list of texts, or has too many
 */
export function mapClaims(config: OidcIssuer, claims: Claims, signIn: boolean): MappedClaims {
  const roles = valuesOf(claims, config.role_claim).flatMap((value) => {
    const mapped = Object.hasOwn(config.roles, value) ? config.roles[value] : undefined;
    return mapped === undefined ? [] : [mapped];
  });
  const highest = roles.toSorted((a, b) => ROLES.indexOf(b.role) - ROLES.indexOf(a.role))[0];
  const projects = projectsOf(config, claims, signIn);
  const groups = valuesOf(claims, config.group_claim).flatMap((value) => named(config.groups, value) ?? []);
  const saysGroups = config.group_claim !== null && (signIn || isTold(claims, config.group_claim));
  const saysRole = config.role_claim !== null && (signIn || isTold(claims, config.role_claim));
  const told = saysRole ? (highest?.role ?? 'consumer') : undefined;
  return {
    name: nameOf(claims),
    email: emailOf(claims),
    role: told,
    provider: highest?.provider,
    projects,
    groups: saysGroups ? [...new Set(groups)].toSorted() : undefined,
    matches: highest !== undefined || groups.length > 0 || projects?.own !== undefined || !!projects?.members.size,
  };
}

function projectsOf(config: OidcIssuer, claims: Claims, signIn: boolean): MappedProjects | undefined {
  const { project_claim: claim, projects, leads } = config;
  if (claim === null || !(signIn || isTold(claims, claim))) return undefined;
  const values = valuesOf(claims, claim);
  const [own, ...others] = values.flatMap((value) => named(projects, value) ?? []);
  const members = new Map(others.filter((id) => id !== own).map((id) => [id, { lead: false }]));
  for (const id of values.flatMap((value) => named(leads, value) ?? [])) members.set(id, { lead: true });
  return { own, members, decided: new Set([...Object.values(projects), ...Object.values(leads)]) };
}

/** What a value is mapped to; it is a stranger's word, such as `__proto__`. */
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

/** A person's name as it is shown: a line of a terminal. */
export function displayName(text: string): string {
  const plain = text
    .replace(/[\p{Cc}\u2028\u2029]/gu, ' ')
    // What is not seen, or turns the text around it, makes one person look like another; joiners are letters' own.
    .replace(/(?![\u200c\u200d])\p{Cf}/gu, '')
    .trim()
    .slice(0, NAME_MAX);
  return plain === '' ? 'somebody' : plain;
}

/** Texts at a path of claims: one, or each of a list. */
function valuesOf(claims: Claims, path: string | null): string[] {
  if (path === null) return [];
  const found = claimAt(claims, path) ?? [];
  const values: unknown[] = Array.isArray(found) ? found : [found];
  if (values.length > CLAIM_VALUES_MAX)
    throw wrongClaim(path, `has ${values.length} values, and ${CLAIM_VALUES_MAX} are read: have it send fewer`);
  // Passed over it would take away what the person had.
  if (!values.every((value) => typeof value === 'string')) throw wrongClaim(path, 'is no list of texts');
  return values;
}

function wrongClaim(path: string, what: string): ApiError {
  const message = `The claim "${quoteForMessage(path)}" of your identity provider ${what}. Ask an operator of this gateway.`;
  return new ApiError('permission_denied', message);
}

function isTold(claims: Claims, path: string): boolean {
  return claimAt(claims, path) !== undefined;
}

function claimAt(claims: Claims, path: string): unknown {
  // Some providers have claims whose very names hold dots.
  return Object.hasOwn(claims, path) ? claims[path] : path.split('.').reduce(memberOf, claims as unknown);
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return Object.entries(value).find(([key]) => key === name)?.[1];
}

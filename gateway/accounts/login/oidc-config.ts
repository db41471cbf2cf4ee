/** Identity providers that an operator trusts: who their people are here. Kept as a setting; secrets are in the environment. */
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node.ts';
import { recordOf, secureUrlSchema } from '../../described.ts';
import { ROLES, type Role } from '../schema.ts';

const ISSUERS_MAX = 8;
const VALUES_MAX = 200;
const text = z.string().min(1).max(256);

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
  roles: recordOf(text, z.strictObject({ role: z.enum(ROLES), provider: idSchema.optional() }), VALUES_MAX).default({}),
  project_claim: text.nullable().default(null),
  /** Values of that claim to projects; the first that fits. */
  projects: recordOf(text, z.string().max(64), VALUES_MAX).default({}),
});

export type OidcIssuer = z.infer<typeof issuerSchema>;
export const issuersSchema = z.array(issuerSchema).max(ISSUERS_MAX);

export type Claims = Readonly<Record<string, unknown>>;

/** The role and provider that a person's claims give. */
export interface Standing {
  /** Undefined: not told by claims; access tokens rarely say. */
  name: string | undefined;
  email: string | null | undefined;
  /** Undefined: not told by claims. */
  role: Role | undefined;
  provider: string | undefined;
  projectId: string | undefined;
  /** A value of theirs is mapped. */
  mapped: boolean;
}

const NAME_MAX = 200;

export function standingOf(config: OidcIssuer, claims: Claims): Standing {
  const roles = valuesOf(claims, config.role_claim).flatMap((value) => {
    const mapped = Object.hasOwn(config.roles, value) ? config.roles[value] : undefined;
    return mapped === undefined ? [] : [mapped];
  });
  const highest = roles.toSorted((a, b) => ROLES.indexOf(b.role) - ROLES.indexOf(a.role))[0];
  const project = valuesOf(claims, config.project_claim).find((value) => Object.hasOwn(config.projects, value));
  const told = config.role_claim === null ? undefined : (highest?.role ?? 'consumer');
  return {
    name: nameOf(claims),
    email: emailOf(claims),
    role: told,
    provider: highest?.provider,
    projectId: project === undefined ? undefined : config.projects[project],
    mapped: highest !== undefined || project !== undefined,
  };
}

function emailOf({ email }: Claims): string | null | undefined {
  if (email === undefined) return undefined;
  return typeof email === 'string' && email.length <= 320 ? email : null;
}

function nameOf({ name, preferred_username, email }: Claims): string | undefined {
  const given = [name, preferred_username, email].find((one) => typeof one === 'string');
  return typeof given === 'string' ? shownName(given) : undefined;
}

/** A person's name as it is shown: a line of a terminal. */
export function shownName(text: string): string {
  const plain = text
    .replace(/\p{Cc}/gu, ' ')
    .trim()
    .slice(0, NAME_MAX);
  return plain === '' ? 'somebody' : plain;
}

/** Texts at a path of claims: one, or each of a list. */
function valuesOf(claims: Claims, path: string | null): string[] {
  if (path === null) return [];
  // Some providers have claims whose very names hold dots.
  const found = path in claims ? claims[path] : path.split('.').reduce(memberOf, claims as unknown);
  const values = Array.isArray(found) ? found : [found];
  return values.filter((value) => typeof value === 'string');
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return Object.entries(value).find(([key]) => key === name)?.[1];
}

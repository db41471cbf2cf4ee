/** The configuration of a gateway as one TOML file: its schema, its parser and its canonical text. */
import { parse, stringify, TomlDate, TomlError } from 'smol-toml';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ROLES } from '../../accounts/account-tables.ts';
import { grantsSchema, restrictionsSchema, servingOptionsSchema } from '../../admin/field-schemas.ts';
import { settingsPatchSchema } from '../../admin/settings-patch-schema.ts';
import { CommandError } from '../../command-error.ts';
import { displayNameSchema, emailSchema } from '../../http/common-schemas.ts';
import { limitsSchema } from '../../settings/limits-schema.ts';
import { ownRoutingSchema } from '../../settings/routing-settings.ts';
import { DEFAULTS } from './defaults.ts';
import type { Entry } from './entry.ts';

/** Larger than the file of an installation with ten thousand users. */
export const FILE_MAX_BYTES = 16 * 1024 * 1024;
/** Reported problems of one file. An operator fixes a few at a time. */
const PROBLEMS_MAX = 20;

const name = z.string().min(1).max(256);
const count = z.int().min(1).max(1_000_000_000);
const limits = limitsSchema.optional();

const provider = z.strictObject({
  name: displayNameSchema.optional(),
  trusted_by_default: z.boolean().optional(),
  max_nodes: count.optional(),
  models: z.array(name).max(100).optional(),
});
const member = z.strictObject({ lead: z.boolean().optional(), limits });
const { models, endpoints, trusted_providers, regions, tiers } = restrictionsSchema.partial().shape;
const project = z.strictObject({
  models,
  endpoints,
  trusted_providers,
  regions,
  tiers,
  limits,
  no_track: grantsSchema.shape.no_track.optional(),
  resume: servingOptionsSchema.shape.resume.optional(),
  start_wait_ms: servingOptionsSchema.shape.start_wait_ms.optional(),
  // The gateway checks the name of the policy, because this command does not know policies of `serve --policy`.
  routing: ownRoutingSchema.optional(),
  trace: z.boolean().optional(),
  trace_prefixes: z.boolean().optional(),
  disabled: z.boolean().optional(),
  members: z.record(name, member).optional(),
});
const user = z.strictObject({
  name: displayNameSchema.optional(),
  email: emailSchema.optional(),
  role: z.enum(ROLES).optional(),
  provider: idSchema.optional(),
  /** Name of the home project. */
  project: name.optional(),
  limits,
  issuer: z.string().min(1).max(512).optional(),
  subject: z.string().min(1).max(512).optional(),
  disabled: z.boolean().optional(),
});
const catalogueEntry = z.strictObject({
  /** The user that is responsible for the model, as `users` names it. */
  owner: name.optional(),
  /** `project:NAME`, `user:NAME`, `group:NAME`, or the id of a key. */
  access: z.array(name).max(100).optional(),
  always_on: z.boolean().optional(),
  deprecated_at: z.iso.datetime({ offset: true }).optional(),
  sunset_at: z.iso.datetime({ offset: true }).optional(),
  successor: name.optional(),
});
/** Members of known names. The gateway checks their values, because they depend on its policies. */
const membersOf = (defaults: Entry) =>
  z.strictObject(Object.fromEntries(Object.keys(defaults).map((member) => [member, z.json().optional()])));

export const SECTIONS = ['settings', 'providers', 'projects', 'users', 'catalogue', 'models', 'model_cards'] as const;
export type Section = (typeof SECTIONS)[number];

const fileSchema = z.strictObject({
  settings: settingsPatchSchema.optional(),
  providers: z.record(name, provider).optional(),
  projects: z.record(name, project).optional(),
  users: z.record(name, user).optional(),
  catalogue: z.record(name, catalogueEntry).optional(),
  models: z.record(name, membersOf(DEFAULTS.models)).optional(),
  model_cards: z.record(name, membersOf(DEFAULTS.model_cards)).optional(),
});

export type Entries = Readonly<Record<string, Entry>>;
/** A section that is absent is not managed by the file. */
export interface Configuration extends Partial<Record<Exclude<Section, 'settings'>, Entries>> {
  settings?: Entry;
}

/** @throws CommandError with one line per problem, each beginning with `file` */
export function parseConfiguration(text: string, file: string): Configuration {
  let value: unknown;
  try {
    value = parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [first = 'not valid TOML'] = error.message.split('\n');
    throw new CommandError(`${file}:${error.line}: ${first.replace(/^Invalid TOML document: /, '')}`);
  }
  const read = fileSchema.safeParse(withoutDates(value));
  if (read.success) return read.data as Configuration;
  const problems = read.error.issues.map(({ path, message }) => `${file}: ${path.join('.') || 'file'}: ${message}`);
  throw new CommandError(problems.slice(0, PROBLEMS_MAX).join('\n'));
}

/** Converts dates of TOML to RFC 3339. A date without a time is midnight UTC. */
function withoutDates(value: unknown): unknown {
  if (value instanceof TomlDate) return new Date(value.getTime()).toISOString();
  if (Array.isArray(value)) return value.map(withoutDates);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withoutDates(one)]));
}

const HEAD = `# Configuration of an OpenTela gateway. Written by \`otela-gateway export\`, read by \`otela-gateway apply\`.
# It contains no secret. Keys and tokens are not part of it.
`;

/** Returns the canonical text, without a line's end at its end: sections in a fixed order, names sorted, nothing that has its default. */
export function formatConfiguration(configuration: Configuration): string {
  const sections = SECTIONS.flatMap((section) => {
    const entries = configuration[section];
    return entries === undefined || Object.keys(entries).length === 0 ? [] : [[section, sorted(entries)] as const];
  });
  return `${HEAD}\n${stringify(Object.fromEntries(sections)).trimEnd()}`;
}

/** Returns a copy with sorted names at every depth, and without null, which TOML cannot express. */
export function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, one]) => one !== null && one !== undefined)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => [key, sorted(one)]),
  );
}

/** True if two values of the file are equal, in any order of their members. */
export function isEqual(a: unknown, b: unknown): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

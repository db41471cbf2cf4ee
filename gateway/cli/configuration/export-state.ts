/** Writes the state of a gateway in the form of a configuration file: names instead of ids, and no defaults. */
import { settingsPatchSchema } from '../../admin/settings-patch-schema.ts';
import { type Configuration, type Entries, isEqual } from './configuration-file.ts';
import { DEFAULTS } from './defaults.ts';
import type { Entry } from './entry.ts';
import type { GatewayState } from './gateway-state.ts';
import { nameUsers } from './user-names.ts';

/** Longest name of a project that the setting `oidc` accepts in place of an id. */
const REFERENCE_MAX_CHARS = 64;

/** A configuration, and what its names stand for at this gateway. */
export interface NamedState {
  configuration: Configuration & Required<Pick<Configuration, 'settings'>>;
  /** Ids of projects and users by their name in the file. */
  projects: ReadonlyMap<string, string>;
  users: ReadonlyMap<string, string>;
  /** What the file cannot name, for a warning. */
  omitted: readonly string[];
}

/** @param preferred names of users that a file already has, by id */
export function exportState(state: GatewayState, preferred: ReadonlyMap<string, string> = new Map()): NamedState {
  const omitted: string[] = [];
  const projects = uniqueNames(state, omitted);
  const users = nameUsers(state.users, preferred);
  for (const { id, name } of state.users)
    if (!users.has(id)) omitted.push(`user ${id}: no other name than "${name}", which others have`);
  const projectOf = (id: string) => projects.get(id);
  const userOf = (id: string) => users.get(id);
  const listed = state.projects.flatMap((row) => {
    const name = projectOf(row.id);
    if (name === undefined) return [];
    const own = withoutDefaults({ ...row, disabled: row.disabled_at !== null }, DEFAULTS.projects);
    const members = membersOf(state, row.id, userOf);
    return [[name, { ...own, ...(Object.keys(members).length > 0 && { members }) }] as const];
  });
  const people = state.users.flatMap((row) => {
    const name = userOf(row.id);
    if (name === undefined) return [];
    const project = row.project_id === null ? null : (projectOf(row.project_id) ?? null);
    const {
      name: own = name,
      email,
      ...rest
    } = withoutDefaults({ ...row, project, disabled: row.disabled_at !== null }, DEFAULTS.users);
    const entry = {
      ...(own !== name && { name: own }),
      ...(email !== undefined && email !== name && { email }),
      ...rest,
      ...(row.issuer !== null && { issuer: row.issuer, subject: row.subject }),
    };
    return [[name, entry] as const];
  });
  const catalogue = state.catalogue.map((row) => {
    const owner = row.owner_id === null ? null : (userOf(row.owner_id) ?? null);
    const access = row.access?.map((one) => nameAccess(one, projectOf, userOf)) ?? null;
    return [row.id, withoutDefaults({ ...row, owner, access }, DEFAULTS.catalogue)] as const;
  });
  const providers = state.providers.filter(({ deleted_at }) => deleted_at === null);
  return {
    configuration: {
      settings: namedSettings(state.settings, projectOf),
      providers: byName(providers.map((row) => [row.id, withoutDefaults(row, DEFAULTS.providers)] as const)),
      projects: byName(listed),
      users: byName(people),
      catalogue: byName(catalogue),
      models: byName(state.models.map((row) => [row.id, withoutDefaults(row, DEFAULTS.models)] as const)),
      model_cards: byName(
        state.model_cards.map((row) => [row.id, withoutDefaults(row, DEFAULTS.model_cards)] as const),
      ),
    },
    projects: inverted(projects),
    users: inverted(users),
    omitted,
  };
}

/** Names projects. Of projects with the same name, the file can contain none. */
function uniqueNames({ projects }: GatewayState, omitted: string[]): Map<string, string> {
  const names = new Map<string, string>();
  for (const same of Map.groupBy(projects, ({ name }) => name).values()) {
    const [first] = same;
    if (first !== undefined && same.length === 1) names.set(first.id, first.name);
    else if (first !== undefined)
      omitted.push(`projects ${same.map(({ id }) => id).join(', ')}: they have the same name, "${first.name}"`);
  }
  return names;
}

/** Returns memberships that an operator or a lead granted. Claims grant the others again at each login. */
function membersOf(state: GatewayState, project: string, userOf: (id: string) => string | undefined): Entries {
  const granted = (state.members.get(project) ?? []).flatMap((row) => {
    const name = userOf(row.user_id);
    const isGranted = (!row.claimed && (!row.home || row.lead)) || row.limits !== null;
    if (name === undefined || !isGranted) return [];
    return [[name, withoutDefaults({ ...row, lead: row.lead && !row.claimed }, DEFAULTS.members)] as const];
  });
  return byName(granted);
}

type NameOf = (id: string) => string | undefined;

/** Names what an access list contains. Ids of keys stay ids, because a key has no other lasting name. */
function nameAccess(id: string, projectOf: NameOf, userOf: NameOf): string {
  const project = projectOf(id);
  if (project !== undefined) return `project:${project}`;
  const user = userOf(id);
  return user === undefined ? id : `user:${user}`;
}

function namedSettings(settings: Readonly<Record<string, unknown>>, projectOf: NameOf): Entry {
  const { object: _, ...values } = settings;
  const known = Object.entries(values).filter(([key, value]) => value !== null && key in settingsPatchSchema.shape);
  // Adds the defaults that the parser of the file also adds, so that both can be compared.
  const { oidc, ...rest } = settingsPatchSchema.parse(Object.fromEntries(known));
  if (oidc == null) return rest;
  const name = (id: string) => {
    const found = projectOf(id);
    return found === undefined || found.length > REFERENCE_MAX_CHARS ? id : found;
  };
  return { ...rest, oidc: mapProjects(oidc, name) };
}

interface MapsProjects {
  projects: Readonly<Record<string, string>>;
  leads: Readonly<Record<string, string>>;
}

/** Replaces each project in the mappings of identity providers. */
export function mapProjects<Issuer extends MapsProjects>(oidc: readonly Issuer[], replace: (one: string) => string) {
  const replaced = (map: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(map).map(([claim, one]) => [claim, replace(one)]));
  return oidc.map((one) => ({ ...one, projects: replaced(one.projects), leads: replaced(one.leads) }));
}

/** Returns the members in `defaults` that differ from their default. */
function withoutDefaults(row: Entry, defaults: Entry): Entry {
  const set = Object.entries(defaults).filter(([key, standard]) => row[key] != null && !isEqual(row[key], standard));
  return Object.fromEntries(set.map(([key]) => [key, row[key]]));
}

function byName(entries: readonly (readonly [string, Entry])[]): Entries {
  return Object.fromEntries(entries);
}

function inverted(names: ReadonlyMap<string, string>): Map<string, string> {
  return new Map([...names].map(([id, name]) => [name, id]));
}

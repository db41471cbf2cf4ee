/** Compares a configuration file with a gateway, and returns the requests that make the gateway equal to the file. */
import type { Entries } from './configuration-file.ts';
import { type Configuration, isEqual } from './configuration-file.ts';
import { DEFAULTS } from './defaults.ts';
import type { Entry } from './entry.ts';
import { mapProjects, type NamedState } from './export-state.ts';
import { withOwnName } from './user-names.ts';

interface FieldChange {
  field: string;
  before: unknown;
  after: unknown;
}

export interface AdminRequest {
  method: 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** Path with `/admin`. */
  path: string;
  body?: Readonly<Record<string, unknown>>;
}

/** Resolves names of the file to ids. Objects that earlier changes created are known. */
export interface Names {
  project(name: string): string;
  user(name: string): string;
}

export interface Change {
  verb: 'create' | 'update' | 'remove';
  /** The kind of the object, as messages name it. */
  kind: 'setting' | 'provider' | 'project' | 'user' | 'member' | 'catalogue entry' | 'model' | 'model card';
  name: string;
  fields: readonly FieldChange[];
  /**
   * Returns the requests, in order. The response to the first one has the id of a new project or user, and `names` must
   * know it before the next one is taken.
   */
  requests(names: Names): Iterable<AdminRequest>;
}

/** Returns the changes in an order in which each object exists before another one names it. */
export function planChanges(wanted: Configuration, { configuration: current }: NamedState): Change[] {
  const { oidc, ...settings } = wanted.settings ?? {};
  return [
    // Before providers: the setting default_trust decides whether a new provider is trusted.
    ...settingChanges(settings, current.settings, (value) => value),
    ...planned(wanted.providers, current.providers, 'provider', DEFAULTS.providers, providerRequests),
    ...planned(wanted.projects, current.projects, 'project', DEFAULTS.projects, projectRequests),
    ...planned(withOwnNames(wanted.users), withOwnNames(current.users), 'user', DEFAULTS.users, userRequests),
    ...memberChanges(wanted.projects, current.projects),
    ...planned(wanted.catalogue, current.catalogue, 'catalogue entry', DEFAULTS.catalogue, catalogueRequests),
    ...planned(wanted.models, current.models, 'model', DEFAULTS.models, putRequest('/admin/models')),
    ...planned(
      wanted.model_cards,
      current.model_cards,
      'model card',
      DEFAULTS.model_cards,
      putRequest('/admin/model-cards'),
    ),
    ...settingChanges(oidc === undefined ? {} : { oidc }, current.settings, (value, names) =>
      mapProjects(value as Parameters<typeof mapProjects>[0], (one) => names.project(one)),
    ),
  ];
}

interface PlannedChange {
  name: string;
  entry: Entry;
  changed: Entry;
  isNew: boolean;
}
type RequestsOf = (change: PlannedChange, names: Names) => Iterable<AdminRequest>;

function planned(
  wanted: Entries | undefined,
  current: Entries | undefined,
  kind: Change['kind'],
  defaults: Entry,
  requestsOf: RequestsOf,
): Change[] {
  return Object.entries(wanted ?? {}).flatMap(([name, entry]): Change[] => {
    const had = own(current, name);
    const fields = changedFields(entry, had ?? {}, defaults);
    if (had !== undefined && fields.length === 0) return [];
    const changed = Object.fromEntries(fields.map(({ field, after }) => [field, after]));
    const isNew = had === undefined;
    return [
      {
        verb: isNew ? 'create' : 'update',
        kind,
        name,
        fields,
        requests: (names) => requestsOf({ name, entry, changed, isNew }, names),
      },
    ];
  });
}

/** Returns the members that differ. An absent member has its default, and stays as it is if the default is undefined. */
function changedFields(entry: Entry, had: Entry, defaults: Entry): FieldChange[] {
  return Object.entries(defaults).flatMap(([field, standard]) => {
    const after = entry[field] ?? standard;
    const before = had[field] ?? standard;
    return after === undefined || isEqual(after, before) ? [] : [{ field, before, after }];
  });
}

function settingChanges(wanted: Entry, current: Entry, bodyValue: (value: unknown, names: Names) => unknown): Change[] {
  return Object.entries(wanted).flatMap(([name, after]): Change[] => {
    const before = current[name];
    if (isEqual(after, before)) return [];
    const requests = (names: Names): AdminRequest[] => [
      { method: 'PATCH', path: '/admin/settings', body: { [name]: bodyValue(after, names) } },
    ];
    return [{ verb: 'update', kind: 'setting', name, fields: [{ field: name, before, after }], requests }];
  });
}

const providerRequests: RequestsOf = ({ name, changed, isNew }) => [
  isNew
    ? { method: 'POST', path: '/admin/providers', body: { id: name, ...changed } }
    : { method: 'PATCH', path: at('/admin/providers', name), body: changed },
];

function* projectRequests({ name, changed, isNew }: PlannedChange, names: Names): Iterable<AdminRequest> {
  const { disabled, ...body } = changed;
  if (isNew) yield { method: 'POST', path: '/admin/projects', body: { name, ...body } };
  // The REST API creates only enabled objects.
  const rest = isNew ? { disabled } : changed;
  if (!isNew || disabled === true)
    yield { method: 'PATCH', path: at('/admin/projects', names.project(name)), body: rest };
}

function* userRequests({ name, entry, changed, isNew }: PlannedChange, names: Names): Iterable<AdminRequest> {
  const { project, disabled, ...rest } = changed;
  const home = typeof project === 'string' ? names.project(project) : null;
  const body = { ...rest, ...(project !== undefined && { project_id: home }) };
  const { issuer, subject, name: given = name } = entry;
  const identity = issuer === undefined ? {} : { issuer, subject };
  if (isNew) yield { method: 'POST', path: '/admin/users', body: { ...body, ...identity, name: given } };
  if (isNew && disabled !== true) return;
  const further = { ...(isNew ? {} : body), ...(disabled !== undefined && { disabled }) };
  yield { method: 'PATCH', path: at('/admin/users', names.user(name)), body: further };
}

const catalogueRequests: RequestsOf = ({ name, changed }, names) => {
  const { owner, access, ...rest } = changed;
  const body = {
    ...rest,
    ...(owner !== undefined && { owner_id: typeof owner === 'string' ? names.user(owner) : null }),
    ...(access !== undefined && { access: Array.isArray(access) ? access.map((one) => accessId(one, names)) : null }),
  };
  return [{ method: 'PATCH', path: at('/admin/catalogue', name), body }];
};

function accessId(one: unknown, names: Names): unknown {
  if (typeof one !== 'string') return one;
  const [, kind, name = ''] = /^(project|user):(.*)$/s.exec(one) ?? [];
  return kind === undefined ? one : kind === 'project' ? names.project(name) : names.user(name);
}

function putRequest(path: string): RequestsOf {
  return ({ name, entry }) => [{ method: 'PUT', path: at(path, name), body: entry }];
}

function memberChanges(wanted: Entries | undefined, current: Entries | undefined): Change[] {
  return Object.entries(wanted ?? {}).flatMap(([project, { members }]) => {
    const requestsOf: RequestsOf = ({ name, changed, isNew }, names) => {
      const path = `${at('/admin/projects', names.project(project))}/members/${encodeURIComponent(names.user(name))}`;
      const { lead, limits } = changed;
      const isPut = isNew || lead !== undefined;
      return [
        ...(isPut ? [{ method: 'PUT' as const, path, body: lead === undefined ? {} : { lead } }] : []),
        ...(limits === undefined ? [] : [{ method: 'PATCH' as const, path, body: { limits } }]),
      ];
    };
    const had = own(current, project)?.members;
    const changes = planned(entriesOf(members), entriesOf(had), 'member', DEFAULTS.members, requestsOf);
    return changes.map((change) => ({ ...change, name: `${change.name} of ${project}` }));
  });
}

function withOwnNames(users: Entries | undefined): Entries {
  return Object.fromEntries(Object.entries(users ?? {}).map(([key, entry]) => [key, withOwnName(key, entry)]));
}

export function entriesOf(value: unknown): Entries {
  return typeof value === 'object' && value !== null ? (value as Entries) : {};
}

function own(entries: Entries | undefined, name: string): Entry | undefined {
  return entries !== undefined && Object.hasOwn(entries, name) ? entries[name] : undefined;
}

function at(path: string, id: string): string {
  return `${path}/${encodeURIComponent(id)}`;
}

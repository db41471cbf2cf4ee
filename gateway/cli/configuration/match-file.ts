/** Finds the objects of a gateway that a configuration file names, and refuses names that mean nothing or several. */
import { CommandError } from '../../command-error.ts';
import type { Configuration } from './configuration-file.ts';
import { exportState, type NamedState } from './export-state.ts';
import type { GatewayState } from './gateway-state.ts';
import { entriesOf } from './plan-changes.ts';
import { matchingUsers, withOwnName } from './user-names.ts';

/** Reported problems of one file. An operator fixes a few at a time. */
const PROBLEMS_MAX = 20;

/** Returns the state under the names of the file. @throws CommandError with one line per problem */
export function matchFile(wanted: Configuration, state: GatewayState, file: string): NamedState {
  const problems: string[] = [];
  const preferred = matchUsers(wanted, state, problems);
  const named = exportState(state, preferred);
  checkProjects(wanted, state, problems);
  checkReferences(wanted, named, problems);
  if (problems.length === 0) return named;
  throw new CommandError(
    problems
      .slice(0, PROBLEMS_MAX)
      .map((problem) => `${file}: ${problem}`)
      .join('\n'),
  );
}

function matchUsers({ users }: Configuration, state: GatewayState, problems: string[]): Map<string, string> {
  const names = new Map<string, string>();
  for (const [key, entry] of Object.entries(users ?? {})) {
    if ((entry.issuer === undefined) !== (entry.subject === undefined))
      problems.push(`users.${key}: issuer and subject must be given together`);
    const found = matchingUsers(withOwnName(key, entry), state.users);
    const [user] = found;
    if (found.length > 1)
      problems.push(`users.${key}: ${found.map(({ id }) => id).join(' and ')} match; add issuer and subject`);
    else if (user !== undefined) {
      const other = names.get(user.id);
      if (other !== undefined) problems.push(`users.${key}: is the same user as users.${other}`);
      names.set(user.id, key);
    }
  }
  return names;
}

function checkProjects({ projects }: Configuration, state: GatewayState, problems: string[]): void {
  for (const name of Object.keys(projects ?? {})) {
    const same = state.projects.filter((project) => project.name === name);
    if (same.length > 1)
      problems.push(`projects.${name}: ${same.map(({ id }) => id).join(' and ')} have this name; rename one of them`);
  }
}

const ID = /^(?:key|user|proj)_[\w-]{1,60}$/;

function checkReferences(wanted: Configuration, named: NamedState, problems: string[]): void {
  const projects = new Set([...named.projects.keys(), ...Object.keys(wanted.projects ?? {})]);
  const users = new Set([...named.users.keys(), ...Object.keys(wanted.users ?? {})]);
  const require = (where: string, kind: 'project' | 'user', name: unknown) => {
    const known = kind === 'project' ? projects : users;
    if (typeof name === 'string' && !known.has(name) && !ID.test(name))
      problems.push(`${where}: there is no ${kind} "${name}"`);
  };
  for (const [key, { project }] of Object.entries(wanted.users ?? {}))
    require(`users.${key}.project`, 'project', project);
  for (const [key, { members }] of Object.entries(wanted.projects ?? {}))
    for (const user of Object.keys(entriesOf(members))) require(`projects.${key}.members`, 'user', user);
  for (const [key, { owner, access }] of Object.entries(wanted.catalogue ?? {})) {
    require(`catalogue.${key}.owner`, 'user', owner);
    for (const one of Array.isArray(access) ? access : []) {
      const [, kind, name] = /^(project|user):(.*)$/s.exec(String(one)) ?? [];
      if (kind === 'project' || kind === 'user') require(`catalogue.${key}.access`, kind, name);
    }
  }
  const { oidc } = wanted.settings ?? {};
  for (const issuer of Array.isArray(oidc) ? oidc : [])
    for (const map of [issuer.projects, issuer.leads])
      for (const project of Object.values(map)) require('settings.oidc', 'project', project);
}

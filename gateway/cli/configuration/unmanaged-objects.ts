/** Objects that a gateway has and its configuration file does not name. */
import type { Configuration, Entries } from './configuration-file.ts';
import type { Entry } from './entry.ts';
import type { NamedState } from './export-state.ts';
import { type Change, entriesOf } from './plan-changes.ts';

const path = (collection: string, id: string) => `/admin/${collection}/${encodeURIComponent(id)}`;

/**
 * Returns the changes that remove objects which no present section of the file names. Users and projects are disabled,
 * because usage records refer to them. A disabled one is left as it is.
 * @param self name of the user that runs the command, which is never removed
 */
export function planRemovals(
  wanted: Configuration,
  { configuration: current }: NamedState,
  self: string | undefined,
): Change[] {
  const users = unnamed(wanted.users, current.users).filter(
    ([name, entry]) => name !== self && entry.disabled !== true,
  );
  const projects = unnamed(wanted.projects, current.projects).filter(([, entry]) => entry.disabled !== true);
  const disabled = { field: 'disabled', before: false, after: true };
  return [
    ...(['model card', 'model', 'catalogue entry'] as const).flatMap((kind) => {
      const section = SECTION_OF[kind];
      return unnamed(wanted[section], current[section]).map(([name]) =>
        removal(kind, name, path(COLLECTION_OF[kind], name)),
      );
    }),
    ...memberRemovals(wanted.projects, current.projects),
    ...users.map(
      ([name]): Change => ({
        verb: 'remove',
        kind: 'user',
        name,
        fields: [disabled],
        requests: (names) => [{ method: 'PATCH', path: path('users', names.user(name)), body: { disabled: true } }],
      }),
    ),
    ...projects.map(
      ([name]): Change => ({
        verb: 'remove',
        kind: 'project',
        name,
        fields: [disabled],
        requests: (names) => [
          { method: 'PATCH', path: path('projects', names.project(name)), body: { disabled: true } },
        ],
      }),
    ),
    ...unnamed(wanted.providers, current.providers).map(([name]) => removal('provider', name, path('providers', name))),
  ];
}

const SECTION_OF = { 'model card': 'model_cards', model: 'models', 'catalogue entry': 'catalogue' } as const;
const COLLECTION_OF = { 'model card': 'model-cards', model: 'models', 'catalogue entry': 'catalogue' } as const;

/** Members of a project are removed only if its entry has `members`. */
function memberRemovals(wanted: Entries | undefined, current: Entries | undefined): Change[] {
  return Object.entries(wanted ?? {}).flatMap(([project, { members }]) => {
    if (members === undefined) return [];
    const had = Object.entries(current ?? {}).find(([name]) => name === project)?.[1].members;
    return unnamed(entriesOf(members), entriesOf(had)).map(
      ([user]): Change => ({
        verb: 'remove',
        kind: 'member',
        name: `${user} of ${project}`,
        fields: [],
        requests: (names) => [
          {
            method: 'DELETE',
            path: `${path('projects', names.project(project))}/members/${encodeURIComponent(names.user(user))}`,
          },
        ],
      }),
    );
  });
}

function removal(kind: Change['kind'], name: string, at: string): Change {
  return { verb: 'remove', kind, name, fields: [], requests: () => [{ method: 'DELETE', path: at }] };
}

/** Returns the entries that the section of the file lacks. An absent section manages nothing. */
function unnamed(wanted: Entries | undefined, current: Entries | undefined): [string, Entry][] {
  if (wanted === undefined) return [];
  return Object.entries(current ?? {}).filter(([name]) => !Object.hasOwn(wanted, name));
}

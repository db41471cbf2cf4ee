/** `otela-gateway members …` and `access …`: who works in a project, and who asks to, or for a model. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { ask, CONNECTION, doorTo, list, print } from './client.ts';

const memberSchema = z.object({
  project_id: z.string(),
  user_id: z.string(),
  name: z.string(),
  lead: z.boolean(),
  claimed: z.boolean(),
  created_at: z.string(),
});

const MEMBER_FLAGS = {
  lead: { value: 'yes|no', takes: ['yes', 'no'], help: 'add, set: lets members in and out' },
  ...CONNECTION,
} as const satisfies Flags;
const MEMBERS_USAGE = 'list PROJECT | add PROJECT USER | set PROJECT USER --lead yes|no | remove PROJECT USER';

export const MEMBERS: Command = {
  summary: 'who works in a project, and who leads it',
  examples: `${MEMBERS_USAGE}

  otela-gateway members list proj_77…
  otela-gateway members add proj_77… user_3a…
  otela-gateway members set proj_77… user_3a… --lead yes
  otela-gateway members remove proj_77… user_3a…      their keys in it are revoked

Members \`by claims\` come and go with the groups of their identity provider, at each sign-in.`,
  verbs: ['list', 'add', 'set', 'remove'],
  flags: MEMBER_FLAGS,
  run: membersCommand,
};

async function membersCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, MEMBER_FLAGS, { words: 3 });
  const [verb, project, user] = words;
  const usage = () => new UsageError(`usage: otela-gateway members ${MEMBERS_USAGE}`);
  if (project === undefined) throw usage();
  const door = doorTo(`/admin/projects/${encodeURIComponent(project)}/members`, values);
  const { lead } = values;
  if (lead !== undefined && (verb === 'list' || verb === 'remove'))
    throw new UsageError(`otela-gateway members ${verb} takes no --lead`);
  if (lead !== undefined && lead !== 'yes' && lead !== 'no') throw new UsageError('--lead: yes or no');
  if (verb === 'list' && user === undefined)
    return list(door, { head: ['user', 'role', 'granted', 'since', 'name'], row: memberRow });
  if (user === undefined) throw usage();
  const one = `/${encodeURIComponent(user)}`;
  if ((verb === 'add' && lead === undefined) || ((verb === 'add' || verb === 'set') && lead !== undefined)) {
    const body = lead === undefined ? {} : { lead: lead === 'yes' };
    return print(door, memberRow, await ask(door, 'PUT', one, body));
  }
  if (verb !== 'remove') throw usage();
  const { deleted } = z.object({ deleted: z.boolean() }).parse(await ask(door, 'DELETE', one));
  if (door.json) console.log(JSON.stringify({ project_id: project, user_id: user, deleted }));
  else console.log(deleted ? `${user}  removed` : `${user} was no member`);
  return EXIT_DONE;
}

function memberRow(value: unknown): string[] {
  const { user_id, name, lead, claimed, created_at } = memberSchema.parse(value);
  return [user_id, lead ? 'lead' : 'member', claimed ? 'by claims' : 'here', created_at, name];
}

const requestSchema = z.object({
  id: z.string(),
  user_id: z.string(),
  user_name: z.string().nullish(),
  project_id: z.string().nullable(),
  model: z.string().nullable(),
  reason: z.string(),
  status: z.string(),
  created_at: z.string(),
});

const ACCESS_USAGE = 'list | approve ID | refuse ID';

export const ACCESS: Command = {
  summary: 'requests of people for projects and models',
  examples: `${ACCESS_USAGE}

  otela-gateway access list
  otela-gateway access approve req_5b…                they are let in at once
  otela-gateway access refuse req_5b…`,
  verbs: ['list', 'approve', 'refuse'],
  flags: CONNECTION,
  run: accessCommand,
};

async function accessCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, CONNECTION, { words: 2 });
  const [verb, id] = words;
  const door = doorTo('/admin/access-requests', values);
  if (verb === 'list' && id === undefined)
    return list(door, { head: ['id', 'status', 'who', 'asks for', 'when', 'reason'], row: requestRow });
  const status = verb === 'approve' ? 'approved' : verb === 'refuse' ? 'refused' : undefined;
  if (status === undefined || id === undefined) throw new UsageError(`usage: otela-gateway access ${ACCESS_USAGE}`);
  return print(door, requestRow, await ask(door, 'PATCH', `/${encodeURIComponent(id)}`, { status }));
}

function requestRow(value: unknown): string[] {
  const { id, user_id, user_name, project_id, model, reason, status, created_at } = requestSchema.parse(value);
  const who = user_name == null ? user_id : `${user_name} (${user_id})`;
  return [id, status, who, project_id ?? `model ${model}`, created_at, reason || '–'];
}

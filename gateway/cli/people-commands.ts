/** `otela-gateway members …` and `access …`: a project's members, and requests for membership or for a model. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { askGateway, CONNECTION_FLAGS, printAnswer, printList, targetAt, wasDeleted } from './api-client.ts';
import { bodyFromFlags, limitsFromAnswer, mergeLimits } from './resource-command.ts';
import { LIMIT_FLAGS, RIGHT_FLAGS } from './resources.ts';

const memberSchema = z.object({
  project_id: z.string(),
  user_id: z.string(),
  name: z.string(),
  lead: z.boolean(),
  claimed: z.boolean(),
  home: z.boolean(),
  limits: z.record(z.string(), z.unknown()).nullable(),
  created_at: z.string(),
});

const MEMBER_FLAGS: Flags = {
  lead: { value: 'yes|no', takes: ['yes', 'no'], help: 'add, set: whether the user may add, remove and limit members' },
  ...LIMIT_FLAGS,
  ...CONNECTION_FLAGS,
};
const MEMBERS_USAGE = 'list PROJECT | add PROJECT USER | set PROJECT USER … | remove PROJECT USER';

export const MEMBERS_COMMAND: Command = {
  summary: 'manage the members of a project, and their limits',
  examples: `${MEMBERS_USAGE}

  otela-gateway members list proj_77…
  otela-gateway members add proj_77… user_3a…
  otela-gateway members set proj_77… user_3a… --lead yes
  otela-gateway members set proj_77… user_3a… --monthly-tokens 1000000   at most the limit of the project
  otela-gateway members remove proj_77… user_3a…      revokes the user's keys in the project

Members \`by claims\` are added and removed at each login, by the groups of the identity provider. \`home\`: new keys of the user belong to this project.`,
  verbs: ['list', 'add', 'set', 'remove'],
  flags: MEMBER_FLAGS,
  run: membersCommand,
};

async function membersCommand(args: readonly string[]): Promise<number> {
  const { values, words, given } = parseLine(args, { ...MEMBER_FLAGS, ...CONNECTION_FLAGS }, { words: 3 });
  const [verb, project, user] = words;
  const usage = () => new UsageError(`usage: otela-gateway members ${MEMBERS_USAGE}`);
  if (project === undefined) throw usage();
  const target = targetAt(`/admin/projects/${encodeURIComponent(project)}/members`, values);
  const taken: Readonly<Record<string, readonly string[]>> = {
    add: ['lead'],
    set: ['lead', ...Object.keys(LIMIT_FLAGS)],
  };
  const over = [...given.keys()].find(
    (flag) => !(flag in CONNECTION_FLAGS) && taken[verb ?? '']?.includes(flag) !== true,
  );
  if (over !== undefined) throw new UsageError(`otela-gateway members ${verb} takes no --${over}`);
  const [lead] = given.get('lead') ?? [];
  if (lead !== undefined && lead !== 'yes' && lead !== 'no') throw new UsageError('--lead must be yes or no');
  if (verb === 'list' && user === undefined)
    return printList(target, { head: ['user', 'role', 'granted', 'limits', 'since', 'name'], row: memberRow });
  if (user === undefined) throw usage();
  const one = `/${encodeURIComponent(user)}`;
  const limits = bodyFromFlags({ flags: LIMIT_FLAGS }, values);
  const isLimit = Object.keys(limits).length > 0;
  if (verb === 'add' || (verb === 'set' && (lead !== undefined || isLimit))) {
    let answer: unknown;
    if (verb === 'add' || lead !== undefined)
      answer = await askGateway(target, 'PUT', one, lead === undefined ? {} : { lead: lead === 'yes' });
    if (isLimit) {
      const before = limitsFromAnswer(await askGateway(target, 'GET', one));
      answer = await askGateway(target, 'PATCH', one, noneIfEmpty(mergeLimits(limits, before)));
    }
    return printAnswer(target, memberRow, answer);
  }
  if (verb !== 'remove') throw usage();
  const deleted = wasDeleted(await askGateway(target, 'DELETE', one));
  if (target.json) console.log(JSON.stringify({ project_id: project, user_id: user, deleted }));
  else console.log(deleted ? `${user}  removed` : `${user} is not a member`);
  return EXIT_DONE;
}

/** Replaces empty limits by null, so that the gateway deletes the row. */
function noneIfEmpty({ limits }: Record<string, unknown>): { limits: unknown } {
  const left = Object.values(limits ?? {}).some((value) => value !== undefined);
  return { limits: left ? limits : null };
}

function memberRow(value: unknown): string[] {
  const { user_id, name, lead, claimed, home, limits, created_at } = memberSchema.parse(value);
  const granted = claimed ? 'by claims' : home ? 'home' : 'here';
  return [user_id, lead ? 'lead' : 'member', granted, limitsText(limits), created_at, name];
}

/** Formats limits under the names of their flags. */
function limitsText(limits: Record<string, unknown> | null): string {
  const words = Object.entries(LIMIT_FLAGS).flatMap(([flag, { member }]) => {
    const value = limits?.[member.slice('limits.'.length)];
    return value === undefined ? [] : [`${flag}=${String(value)}`];
  });
  if (limits?.models !== undefined) words.push('by model');
  return words.join(' ') || '–';
}

const requestSchema = z.object({
  id: z.string(),
  user_id: z.string(),
  user_name: z.string().nullish(),
  project_id: z.string().nullable(),
  model: z.string().nullable(),
  provider: z.string().nullish(),
  cluster: z.string().nullish(),
  reason: z.string(),
  status: z.string(),
  created_at: z.string(),
});

const rightSchema = z.object({
  id: z.string(),
  user_id: z.string(),
  provider: z.string(),
  cluster: z.string(),
  max_nodes: z.number(),
  expires_at: z.string(),
  revoked_at: z.string().nullable(),
});

const ACCESS_USAGE = 'request … | list | approve ID | refuse ID | rights | revoke RIGHT';
const ACCESS_FLAGS: Flags = {
  project: { value: 'ID', help: 'request: membership in this project' },
  model: { value: 'M', help: 'request: this model with an access list' },
  provider: { value: 'P', help: 'request: the right to contribute nodes of this provider' },
  reason: { value: 'TEXT', help: 'request: one line for the user that decides' },
  ...RIGHT_FLAGS,
  ...CONNECTION_FLAGS,
};

export const ACCESS_COMMAND: Command = {
  summary: 'request access to projects and models, or the right to contribute nodes, and decide requests',
  examples: `${ACCESS_USAGE}

  otela-gateway access request --project proj_77… --reason "my thesis"
  otela-gateway access request --provider eth --cluster alps --max-nodes 4 --expires 90d --reason "our GPUs at night"
  otela-gateway access list
  otela-gateway access approve req_5b…                grants the access immediately
  otela-gateway access approve req_5b… --max-nodes 2 --expires 30d      a right to contribute, with other limits
  otela-gateway access refuse req_5b…
  otela-gateway access rights                         rights to contribute nodes; tokens create --provider P --cluster C
  otela-gateway access revoke right_8e…               revokes its tokens and ends their sessions`,
  verbs: ['request', 'list', 'approve', 'refuse', 'rights', 'revoke'],
  flags: ACCESS_FLAGS,
  run: accessCommand,
};

async function accessCommand(args: readonly string[]): Promise<number> {
  const { values, words, given } = parseLine(args, { ...ACCESS_FLAGS, ...CONNECTION_FLAGS }, { words: 2 });
  const [verb, id] = words;
  const target = targetAt('/admin/access-requests', values);
  const rights = targetAt('/admin/provider-rights', values);
  const wanted = bodyFromFlags({ flags: RIGHT_FLAGS }, values);
  const taken = verb === 'request' ? Object.keys(ACCESS_FLAGS) : verb === 'approve' ? Object.keys(RIGHT_FLAGS) : [];
  const over = [...given.keys()].find((flag) => !(flag in CONNECTION_FLAGS) && !taken.includes(flag));
  if (over !== undefined) throw new UsageError(`otela-gateway access ${verb} takes no --${over}`);
  if (verb === 'request' && id === undefined) {
    const [project] = given.get('project') ?? [];
    const asked = { project_id: project, model: given.get('model')?.[0], provider: given.get('provider')?.[0] };
    const reason = given.get('reason')?.[0];
    const body = { ...asked, ...wanted, ...(reason !== undefined && { reason }) };
    return printAnswer(target, requestRow, await askGateway(target, 'POST', '', body));
  }
  if (verb === 'rights' && id === undefined)
    return printList(rights, { head: ['id', 'user', 'provider', 'cluster', 'nodes', 'until', 'state'], row: rightRow });
  if (verb === 'revoke' && id !== undefined)
    return printAnswer(rights, rightRow, await askGateway(rights, 'DELETE', `/${encodeURIComponent(id)}`));
  if (verb === 'list' && id === undefined)
    return printList(target, { head: ['id', 'status', 'who', 'requests', 'when', 'reason'], row: requestRow });
  const status = verb === 'approve' ? 'approved' : verb === 'refuse' ? 'refused' : undefined;
  if (status === undefined || id === undefined) throw new UsageError(`usage: otela-gateway access ${ACCESS_USAGE}`);
  return printAnswer(
    target,
    requestRow,
    await askGateway(target, 'PATCH', `/${encodeURIComponent(id)}`, { status, ...wanted }),
  );
}

function rightRow(value: unknown): string[] {
  const { id, user_id, provider, cluster, max_nodes, expires_at, revoked_at } = rightSchema.parse(value);
  return [id, user_id, provider, cluster, String(max_nodes), expires_at, revoked_at === null ? 'granted' : 'revoked'];
}

function requestRow(value: unknown): string[] {
  const { id, user_id, user_name, project_id, model, provider, cluster, reason, status, created_at } =
    requestSchema.parse(value);
  const what =
    provider == null ? (project_id ?? `model ${model}`) : `nodes of ${provider}, ${cluster ?? 'any cluster'}`;
  const who = user_name == null ? user_id : `${user_name} (${user_id})`;
  return [id, status, who, what, created_at, reason || '–'];
}

/**
 * `otela-gateway keys|users|projects|providers|tokens|factory-tokens`: the verbs and flags of each, and its columns.
 */
import type { Flag } from '../../shared/command-line/index.ts';

/** How a flag's value becomes a member of the request body. */
export type FieldKind = 'text' | 'list' | 'count' | 'switch' | 'expiry';

/** `member`: of the body; with the prefix `limits.` it is a member of `limits`. */
type ResourceFlag = Pick<Flag, 'value' | 'help' | 'takes'> & { member: string; kind: FieldKind };

export interface Resource {
  path: string;
  summary: string;
  examples: string;
  flags: Readonly<Record<string, ResourceFlag>>;
  verbs: readonly ('create' | 'list' | 'show' | 'set' | 'revoke' | 'rotate' | 'delete')[];
  /** The member that is shown only once. Absent: there is none. */
  secret?: 'key' | 'token';
  /** The member that `create` takes as an argument instead of a flag. Absent: none. */
  first?: string;
  /** Members that a list shows between the id and the state. */
  shown: readonly string[];
}

const text = (member: string, value: string, help: string, takes?: Flag['takes']): ResourceFlag => ({
  member,
  kind: 'text',
  value,
  help,
  ...(takes === undefined ? {} : { takes }),
});
const list = (member: string, value: string, help: string): ResourceFlag => ({ member, kind: 'list', value, help });
const count = (limit: string, help: string): ResourceFlag => ({
  member: `limits.${limit}`,
  kind: 'count',
  value: 'N',
  help,
});
const YES_NO = ['yes', 'no'];
const yes = (member: string, help: string): ResourceFlag => ({
  member,
  kind: 'switch',
  value: 'yes|no',
  help,
  takes: YES_NO,
});
const expiry = (help: string): ResourceFlag => ({
  member: 'expires_at',
  kind: 'expiry',
  value: '90d|DATE|never',
  help,
});
const ROLES = ['consumer', 'provider', 'operator'];

export const LIMIT_FLAGS: Resource['flags'] = {
  rpm: count('requests_per_minute', 'requests a minute; "none": no limit'),
  tpm: count('tokens_per_minute', 'tokens a minute; "none": no limit'),
  concurrent: count('concurrent_requests', 'requests at once; "none": no limit'),
  reasoning: count('reasoning_tokens_per_request', 'reasoning tokens of one request; "none": no limit'),
  'gpu-seconds': count('gpu_seconds_per_month', 'GPU seconds a calendar month, UTC; "none": no limit'),
  'monthly-tokens': count('tokens_per_month', 'tokens a calendar month, UTC; "none": no limit'),
};

const RESTRICTIONS: Resource['flags'] = {
  models: list('models', 'M,…', 'model ids, org/* for all of one; "any": no list'),
  endpoints: list('endpoints', 'E,…', 'e.g. chat/completions,embeddings; "any": no list'),
  'trusted-providers': list('trusted_providers', 'P,…', 'whose machines may see requests; "any": no list'),
  regions: list('regions', 'R,…', 'where those machines stand; "any": no list'),
  tiers: { ...list('tiers', 'T,…', 'stable, volatile; "any": no list'), takes: ['stable', 'volatile', 'any'] },
  'no-track': yes('no_track', 'may ask that nothing is kept of a request'),
  resume: yes('resume', 'broken streams go on at another node'),
  'start-wait': {
    member: 'start_wait_ms',
    kind: 'count',
    value: 'MS',
    help: 'milliseconds that requests wait for a model that is being started; "none": as the model’s settings say',
  },
  ...LIMIT_FLAGS,
};

const CHANGED = ['create', 'list', 'show', 'set'] as const;

export const RESOURCES: Readonly<Record<string, Resource>> = {
  keys: {
    path: '/admin/keys',
    summary: 'API keys: what consumers and operators come with',
    examples: `create | list | show ID | set ID | rotate ID | revoke ID

  (umask 077; otela-gateway keys create --name "ada's laptop" --models 'swiss-ai/*' --expires 90d > ada.key)
  otela-gateway keys create --name deploy-bot --role operator
  otela-gateway keys list
  otela-gateway keys set key_1f… --rpm 60 --concurrent 4      what is not named stays
  otela-gateway keys rotate key_1f… --overlap 24h
  otela-gateway keys revoke key_1f…

A key is shown once, alone on stdout. List its id with \`keys list\`.`,
    verbs: [...CHANGED, 'rotate', 'revoke'],
    secret: 'key',
    flags: {
      name: text('name', 'NAME', 'what it is for'),
      role: text('role', ROLES.join('|'), 'what it may do', ROLES),
      provider: text('provider', 'P', 'of a provider’s key: whose'),
      user: text('user_id', 'ID', 'whom it belongs to'),
      project: text('project_id', 'ID', 'whose limits and lists hold besides'),
      scopes: list('scopes', 'S,…', 'inference, registry, usage, admin:read, admin; "any": all that the role may'),
      expires: expiry('when it ends'),
      ...RESTRICTIONS,
    },
    shown: ['role', 'prefix'],
  },
  users: {
    path: '/admin/users',
    summary: 'people, and what they may do',
    examples: `create | list | show ID | set ID | delete ID

  otela-gateway users create --name Pat --role provider --provider psi
  otela-gateway users create --name Ada --issuer https://login.example.org --subject 4711
  otela-gateway users set user_3a… --rpm 60 --gpu-seconds 36000    all of their keys together
  otela-gateway users set user_3a… --disabled yes
  otela-gateway users delete user_3a…                          for good, their records too`,
    verbs: [...CHANGED, 'delete'],
    flags: {
      name: text('name', 'NAME', 'how they are shown'),
      email: text('email', 'ADDRESS', 'where to write to'),
      role: text('role', ROLES.join('|'), 'what they may do', ROLES),
      provider: text('provider', 'P', 'whose nodes they look after'),
      project: text('project_id', 'ID', 'where their keys are made'),
      issuer: text('issuer', 'URL', 'the identity provider that knows them'),
      subject: text('subject', 'SUB', 'and by what name'),
      ...LIMIT_FLAGS,
      disabled: yes('disabled', 'locked out, and their keys with them'),
    },
    shown: ['role', 'provider', 'project_id'],
  },
  projects: {
    path: '/admin/projects',
    summary: 'groups of keys with limits and lists of their own',
    examples: `create | list | show ID | set ID

  otela-gateway projects create --name Physics --trusted-providers eth,psi --rpm 600 --monthly-tokens 50000000
  otela-gateway projects set proj_77… --trace yes
  otela-gateway projects set proj_77… --disabled yes

What a project narrows holds for each of its keys; both apply.`,
    verbs: CHANGED,
    flags: {
      name: text('name', 'NAME', 'how it is shown'),
      trace: yes('trace', 'its requests are in the trace export'),
      'trace-prefixes': yes('trace_prefixes', 'and in it, which prompts begin alike'),
      disabled: yes('disabled', 'none of its keys works'),
      ...RESTRICTIONS,
    },
    shown: ['trace'],
  },
  providers: {
    path: '/admin/providers',
    summary: 'who brings nodes',
    examples: `create ID | list | show ID | set ID | revoke ID

  otela-gateway providers create eth --name "ETH Zurich" --default yes
  otela-gateway providers set eth --default no
  otela-gateway providers revoke eth                           its tokens and its sessions end`,
    verbs: [...CHANGED, 'revoke'],
    first: 'id',
    flags: {
      name: text('name', 'NAME', 'how it is shown'),
      default: yes('trusted_by_default', 'may serve requests that name nobody (default_trust marked)'),
      'max-nodes': { member: 'max_nodes', kind: 'count', value: 'N', help: 'so many nodes at a time; "none": 2000' },
      models: list('models', 'M,…', 'models that its nodes may publish, org/* for all of one; "any": no list'),
    },
    shown: ['trusted_by_default', 'max_nodes'],
  },
  tokens: {
    path: '/admin/join-tokens',
    summary: 'join tokens: what agents are admitted with',
    examples: `create | list | show ID | revoke ID

  (umask 077; otela-gateway tokens create --provider eth --cluster alps --expires 30d > otela-token)
  otela-gateway tokens list
  otela-gateway tokens revoke jt_9c…                           what it let in ends

A token is shown once, alone on stdout.`,
    verbs: ['create', 'list', 'show', 'revoke'],
    secret: 'token',
    flags: {
      provider: text('provider', 'P', 'whose nodes; made where it is new'),
      cluster: text('cluster', 'C', 'that one alone'),
      name: text('name', 'NAME', 'what it is for'),
      'max-nodes': {
        member: 'max_nodes',
        kind: 'count',
        value: 'N',
        help: 'so many nodes at a time, 1000 if left out; "none": as many as its provider may have',
      },
      expires: expiry('when it ends'),
    },
    shown: ['provider', 'cluster', 'nodes', 'max_nodes', 'prefix'],
  },
  'factory-tokens': {
    path: '/admin/factory-tokens',
    summary: 'what factories of jobs come with',
    examples: `create | list | show ID | revoke ID

  (umask 077; otela-gateway factory-tokens create --provider eth --name alps > factory.token)
  otela-gateway factory-tokens list
  otela-gateway factory-tokens revoke ft_9c…                   its models are unknown at once; its jobs run on

A token is shown once, alone on stdout. It is good for POST /factory/exchange and nothing else.`,
    verbs: ['create', 'list', 'show', 'revoke'],
    secret: 'token',
    flags: {
      provider: text('provider', 'P', 'whose nodes its jobs become'),
      name: text('name', 'NAME', 'what it is for'),
      expires: expiry('when it ends'),
    },
    shown: ['provider', 'prefix'],
  },
};

/**
 * The resources that `otela-gateway` manages (keys, users, projects, providers, tokens, factory-tokens): the verbs and
 * flags of each, and its columns.
 */
import type { Flag } from '../../shared/command-line/index.ts';

/** How a flag's value is converted to a member of the request body. */
export type FieldKind = 'text' | 'list' | 'count' | 'switch' | 'expiry';

/** `member`: name in the request body. With the prefix `limits.` it is a member of `limits`. */
type ResourceFlag = Pick<Flag, 'value' | 'help' | 'takes'> & { member: string; kind: FieldKind };

export interface Resource {
  path: string;
  summary: string;
  examples: string;
  flags: Readonly<Record<string, ResourceFlag>>;
  verbs: readonly ('create' | 'list' | 'show' | 'set' | 'revoke' | 'rotate' | 'delete')[];
  /** The member that is shown only at creation; absent: none. */
  secret?: 'key' | 'token';
  /** True if the secret is for an agent: `create` then also prints how to install one. */
  installs?: true;
  /** The member that `create` takes as an argument and not as a flag; absent: none. */
  first?: string;
  /** Members that a list shows between id and state. */
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
  rpm: count('requests_per_minute', 'requests per minute; "none": no limit'),
  tpm: count('tokens_per_minute', 'tokens per minute; "none": no limit'),
  concurrent: count('concurrent_requests', 'concurrent requests; "none": no limit'),
  reasoning: count('reasoning_tokens_per_request', 'reasoning tokens per request; "none": no limit'),
  'gpu-seconds': count('gpu_seconds_per_month', 'GPU seconds per calendar month (UTC); "none": no limit'),
  'audio-seconds': count('audio_seconds_per_month', 'seconds of audio per calendar month (UTC); "none": no limit'),
  images: count('images_per_month', 'images per calendar month (UTC); "none": no limit'),
  'monthly-tokens': count('tokens_per_month', 'tokens per calendar month (UTC); "none": no limit'),
};

/** What a right to contribute nodes is for. */
export const RIGHT_FLAGS: Resource['flags'] = {
  cluster: text('cluster', 'C', 'request, approve: the cluster of the nodes'),
  'max-nodes': { member: 'max_nodes', kind: 'count', value: 'N', help: 'request, approve: maximum nodes at a time' },
  expires: expiry('request, approve: when the right ends; default: in 90 days'),
};

const RESTRICTIONS: Resource['flags'] = {
  models: list('models', 'M,…', 'allowed models, org/* for all models of org; "any": all'),
  endpoints: list('endpoints', 'E,…', 'allowed endpoints, for example chat/completions,embeddings; "any": all'),
  'trusted-providers': list('trusted_providers', 'P,…', 'providers that may receive requests; "any": all'),
  regions: list('regions', 'R,…', 'regions of nodes that may receive requests; "any": all'),
  tiers: {
    ...list('tiers', 'T,…', 'tiers of nodes that may receive requests: stable, volatile; "any": all'),
    takes: ['stable', 'volatile', 'any'],
  },
  'no-track': yes('no_track', 'whether requests may turn off usage records with x-otela-no-track'),
  resume: yes('resume', 'continue a broken stream on another node'),
  'start-wait': {
    member: 'start_wait_ms',
    kind: 'count',
    value: 'MS',
    help: 'milliseconds that requests wait for a model that is starting; "none": as in the settings of the model',
  },
  ...LIMIT_FLAGS,
};

const CHANGED = ['create', 'list', 'show', 'set'] as const;

export const RESOURCES: Readonly<Record<string, Resource>> = {
  keys: {
    path: '/admin/keys',
    summary: 'manage API keys',
    examples: `create | list | show ID | set ID | rotate ID | revoke ID

  (umask 077; otela-gateway keys create --name "ada's laptop" --models 'swiss-ai/*' --expires 90d > ada.key)
  otela-gateway keys create --name deploy-bot --role operator
  otela-gateway keys list
  otela-gateway keys set key_1f… --rpm 60 --concurrent 4      only changes what is named
  otela-gateway keys rotate key_1f… --overlap 24h
  otela-gateway keys revoke key_1f…

A key is shown once; stdout has only the key. \`keys list\` shows its id.`,
    verbs: [...CHANGED, 'rotate', 'revoke'],
    secret: 'key',
    flags: {
      name: text('name', 'NAME', 'name, for example the purpose of the key'),
      role: text('role', ROLES.join('|'), 'role, which decides what the key may do', ROLES),
      provider: text('provider', 'P', 'with --role provider: the provider of the key'),
      user: text('user_id', 'ID', 'user of the key'),
      project: text('project_id', 'ID', 'project of the key; its limits and lists apply too'),
      scopes: list(
        'scopes',
        'S,…',
        'inference, registry, usage, admin:read, admin, scim; "any": all scopes of the role',
      ),
      expires: expiry('when the key expires'),
      ...RESTRICTIONS,
    },
    shown: ['role', 'prefix'],
  },
  users: {
    path: '/admin/users',
    summary: 'manage users, their roles and limits',
    examples: `create | list | show ID | set ID | delete ID

  otela-gateway users create --name Pat --role provider --provider psi
  otela-gateway users create --name Ada --issuer https://login.example.org --subject 4711
  otela-gateway users set user_3a… --rpm 60 --gpu-seconds 36000    limits for all keys of the user together
  otela-gateway users set user_3a… --disabled yes
  otela-gateway users delete user_3a…                          permanently, with the usage records`,
    verbs: [...CHANGED, 'delete'],
    flags: {
      name: text('name', 'NAME', 'name of the user'),
      email: text('email', 'ADDRESS', 'email address of the user'),
      role: text('role', ROLES.join('|'), 'role of the user', ROLES),
      provider: text('provider', 'P', 'provider of the nodes that the user manages'),
      project: text('project_id', 'ID', 'home project: new keys of the user belong to it'),
      issuer: text('issuer', 'URL', 'URL of the identity provider of the user'),
      subject: text('subject', 'SUB', 'subject (sub) of the user at the identity provider'),
      ...LIMIT_FLAGS,
      disabled: yes('disabled', 'disable the user and all keys of the user'),
    },
    shown: ['role', 'provider', 'project_id'],
  },
  projects: {
    path: '/admin/projects',
    summary: 'manage projects: groups of keys with shared limits and lists',
    examples: `create | list | show ID | set ID

  otela-gateway projects create --name Physics --trusted-providers eth,psi --rpm 600 --monthly-tokens 50000000
  otela-gateway projects set proj_77… --trace yes
  otela-gateway projects set proj_77… --disabled yes

The lists and limits of a project and of a key both apply.`,
    verbs: CHANGED,
    flags: {
      name: text('name', 'NAME', 'name of the project'),
      trace: yes('trace', 'export the requests of the project in the workload trace'),
      'trace-prefixes': yes('trace_prefixes', 'also export which prompts share a prefix'),
      disabled: yes('disabled', 'disable all keys of the project'),
      ...RESTRICTIONS,
    },
    shown: ['trace'],
  },
  providers: {
    path: '/admin/providers',
    summary: 'manage providers of nodes',
    examples: `create ID | list | show ID | set ID | revoke ID

  otela-gateway providers create eth --name "ETH Zurich" --default yes
  otela-gateway providers set eth --default no
  otela-gateway providers revoke eth                           revokes its tokens and ends its sessions`,
    verbs: [...CHANGED, 'revoke'],
    first: 'id',
    flags: {
      name: text('name', 'NAME', 'name of the provider'),
      default: yes('trusted_by_default', 'trusted by requests that name no provider (if default_trust is marked)'),
      'max-nodes': { member: 'max_nodes', kind: 'count', value: 'N', help: 'maximum nodes at a time; "none": 2000' },
      models: list('models', 'M,…', 'models that its nodes may publish, org/* for all models of org; "any": all'),
    },
    shown: ['trusted_by_default', 'max_nodes'],
  },
  tokens: {
    path: '/admin/join-tokens',
    summary: 'manage join tokens, with which agents register nodes',
    examples: `create | list | show ID | revoke ID

  (umask 077; otela-gateway tokens create --provider eth --cluster alps --expires 30d > otela-token)
  otela-gateway tokens list
  otela-gateway tokens revoke jt_9c…                           ends the sessions that joined with it

A token is shown once; stdout has only the token. stderr has the line that installs an agent with it.`,
    verbs: ['create', 'list', 'show', 'revoke'],
    secret: 'token',
    installs: true,
    flags: {
      provider: text('provider', 'P', 'provider of the nodes; created if it does not exist'),
      cluster: text('cluster', 'C', 'only nodes of this cluster'),
      name: text('name', 'NAME', 'name, for example the purpose of the token'),
      'max-nodes': {
        member: 'max_nodes',
        kind: 'count',
        value: 'N',
        help: 'maximum nodes at a time, by default 1000; "none": as many as the provider may have',
      },
      expires: expiry('when the token expires'),
    },
    shown: ['provider', 'cluster', 'nodes', 'max_nodes', 'prefix'],
  },
  'factory-tokens': {
    path: '/admin/factory-tokens',
    summary: 'manage factory tokens, with which autoscalers authenticate',
    examples: `create | list | show ID | revoke ID

  (umask 077; otela-gateway factory-tokens create --provider eth --name alps > factory.token)
  otela-gateway factory-tokens list
  otela-gateway factory-tokens revoke ft_9c…                   its models are removed immediately; its jobs continue

A token is shown once; stdout has only the token. It is valid only for POST /factory/exchange.`,
    verbs: ['create', 'list', 'show', 'revoke'],
    secret: 'token',
    flags: {
      provider: text('provider', 'P', 'provider of the nodes that its jobs start'),
      name: text('name', 'NAME', 'name, for example the purpose of the token'),
      expires: expiry('when the token expires'),
    },
    shown: ['provider', 'prefix'],
  },
};

import type { Entry } from './entry.ts';

/**
 * The members of each kind of object and their defaults. A member with the default `undefined` stays as it is if the
 * file does not name it.
 */
export const DEFAULTS = {
  providers: { name: undefined, trusted_by_default: undefined, max_nodes: null, models: null },
  projects: {
    models: null,
    endpoints: null,
    trusted_providers: null,
    regions: null,
    tiers: null,
    limits: null,
    no_track: false,
    resume: false,
    start_wait_ms: null,
    routing: null,
    trace: false,
    trace_prefixes: false,
    disabled: false,
  },
  users: {
    name: undefined,
    email: null,
    role: 'consumer',
    provider: null,
    project: null,
    limits: null,
    disabled: false,
  },
  members: { lead: false, limits: null },
  catalogue: {
    owner: null,
    access: null,
    always_on: false,
    deprecated_at: null,
    sunset_at: null,
    successor: null,
  },
  models: {
    first_byte_ms: null,
    stall_ms: null,
    class: 'standard',
    policy: null,
    aliases: [],
    fallbacks: [],
    max_retries: null,
    start_wait_ms: null,
    private: false,
  },
  model_cards: {
    description: '',
    license: '',
    size: '',
    context_length: null,
    input: [],
    output: [],
    tools: null,
    reasoning: null,
    url: null,
  },
} as const satisfies Record<string, Entry>;

/** Which lines a node gets, and what it cannot create by naming it. */
import { env as worker } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { type Account, BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { type GatewaySettings, NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { lineReasoningBudget, mayHaveLines } from '../../../gateway/accounts/reasoning-budget.ts';
import { knownBatch } from '../../../gateway/batch/leases/agent-routes.ts';
import { leaseOfFunctions, leaseOfModels, waitForOffer } from '../../../gateway/batch/leases/lease-lines.ts';
import type { Env } from '../../../gateway/env.ts';
import { batches } from '../../../gateway/files/file-tables.ts';
import type { RegistrySnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { seedKey } from '../accounts/seed.ts';
import { knock } from '../admin/support.ts';

const entry = {
  session: 's',
  provider: 'lab',
  issuer: 'local',
  labels: {},
  state: 'SERVING',
  models: [{ id: 'm', state: 'ready' }],
} as unknown as RegistryEntry;
const consumer: Account = { ...BOOTSTRAP_ACCOUNT, role: 'consumer', keyId: 'key_1', projectId: 'proj_1' };

/** Number of lines that a node of the model gets from a batch of `account`. */
async function leased(account: Account, settings: Partial<GatewaySettings>): Promise<number> {
  const granted: number[] = [];
  const batch = {
    admission: async () => ({ account, endpoint: '/v1/chat/completions', demands: [{ model: 'm' }] }),
    grant: async (_: string, allowed: number[]) => {
      granted.push(...allowed);
      return { open: [0] };
    },
  };
  const queue = {
    next: async (tried: string[]) => (tried.length === 0 ? 'batch_1' : null),
    leased: async () => {},
  };
  const env = { BATCH_QUEUE: { getByName: () => queue }, BATCH: { getByName: () => batch } } as unknown as Env;
  const view = {
    settings: { ...NO_SETTINGS, known: true, ...settings },
    model: () => undefined,
  } as unknown as RegistrySnapshot;
  await leaseOfModels(env, { entry, view }, ['m'], undefined);
  return granted.length;
}

test('a node gets lines of a batch for as long as its account may use the model', async () => {
  expect(await leased(consumer, {})).toBe(1);
  expect(await leased(consumer, { catalogue: { m: { access: ['proj_1'] } } })).toBe(1);
});

test('no line is leased of a model that was kept for others since, that ended, or that the key may use no more, and none for an endpoint that it may call no more', async () => {
  expect(await leased(consumer, { catalogue: { m: { access: ['proj_2'] } } })).toBe(0);
  expect(await leased(consumer, { catalogue: { m: { sunset_at: Date.now() - 1 } } })).toBe(0);
  const none = { models: undefined, endpoints: undefined, trustedProviders: undefined, data: undefined };
  expect(await leased({ ...consumer, restrictions: [{ ...none, models: ['n'] }] }, {})).toBe(0);
  expect(await leased({ ...consumer, restrictions: [{ ...none, endpoints: ['chat/completions'] }] }, {})).toBe(1);
  expect(await leased({ ...consumer, restrictions: [{ ...none, endpoints: ['embeddings'] }] }, {})).toBe(0);
});

test.each([
  ['tier=volatile', 1],
  ['tier=stable', 0],
])(
  'a line of a function that requires %s is asked of the node: a function is no served model',
  async (require, count) => {
    const granted: number[] = [];
    const model = 'function:file-1';
    const batch = {
      admission: async () => ({ account: consumer, endpoint: '/v1/otela/functions', demands: [{ model, require }] }),
      grant: async (_: string, allowed: number[]) => {
        granted.push(...allowed);
        return { open: [0], function: {} };
      },
    };
    const queue = {
      nextFunction: async (tried: string[]) => (tried.length === 0 ? 'batch_1' : null),
      leased: async () => {},
    };
    const env = { BATCH_QUEUE: { getByName: () => queue }, BATCH: { getByName: () => batch } } as unknown as Env;
    const view = { settings: { ...NO_SETTINGS, known: true }, model: () => undefined } as unknown as RegistrySnapshot;
    const hardware = { gpus: [], cpus: 1, memory_mib: 1 };
    const node = { entry: { ...entry, tier: 'volatile', hardware, models: [] } as unknown as RegistryEntry, view };
    const held = { ready: [], loading: [], stored: [], broken: [] };
    const forbidden = new Set<string>();
    await leaseOfFunctions(env, node, { owners: undefined, held }, forbidden);
    expect(granted).toHaveLength(count);
    // The queue does not count the node as idle for this batch.
    expect([...forbidden]).toEqual(count === 0 ? ['batch_1'] : []);
  },
);

test('a node that names models which it does not serve makes no queue of them, and waits for less long', async () => {
  const named: string[] = [];
  const BATCH_QUEUE = {
    getByName: (name: string) => {
      named.push(name);
      return { wait: () => new Promise(() => {}) };
    },
  };
  vi.useFakeTimers();
  try {
    const waited = waitForOffer(
      { BATCH_QUEUE } as unknown as Env,
      { entry, view: {} as RegistrySnapshot },
      ['m', ...Array.from({ length: 63 }, (_, n) => `invented-${n}`)],
      undefined,
      25_000,
    );
    await vi.advanceTimersByTimeAsync(2_000);
    await waited;
  } finally {
    vi.useRealTimers();
  }
  expect(named).toEqual(['m']);
});

test('a batch that a node invents does not exist, and creates no object', async () => {
  const row = { owner: 'o', createdBy: 'k', createdAt: 0, open: true, summary: {} };
  await database(worker)
    .insert(batches)
    .values({ id: 'batch_there', ...row });
  const named: string[] = [];
  const BATCH = { getByName: (name: string) => ({ name: named.push(name) }) } as unknown as Env['BATCH'];
  const made = { DB: worker.DB, BATCH };
  expect(await knownBatch(made, 'batch_invented')).toBeUndefined();
  for (let n = 0; n < 2; n++) expect(await knownBatch(made, 'batch_there')).toBeDefined();
  expect(named).toEqual(['batch_there', 'batch_there']);
});

test('the bound of a key for reasoning goes with its lines to nodes whose engine takes one', () => {
  const limits = {
    subject: 'k',
    key: { reasoning_tokens_per_request: 9 },
    project: { reasoning_tokens_per_request: 5 },
  };
  const account = { ...consumer, limits };
  const taking = { labels: { 'reasoning-budget': 'thinking_token_budget' } };
  expect(lineReasoningBudget(account, '/v1/chat/completions', taking)).toBe(5);
  expect(lineReasoningBudget(account, '/v1/chat/completions', { labels: {} })).toBeUndefined();
  expect(lineReasoningBudget(account, '/v1/embeddings', taking)).toBeUndefined();
  expect(lineReasoningBudget(consumer, '/v1/chat/completions', taking)).toBeUndefined();
  const may = (
    endpoint: string,
    labels: Record<string, string>,
    whose: Pick<typeof account, 'limits'> | typeof consumer = account,
  ) => mayHaveLines(whose, endpoint, { labels });
  expect(may('/v1/chat/completions', taking.labels)).toBe(true);
  expect(may('/v1/chat/completions', {})).toBe(false);
  expect(may('/v1/chat/completions', { 'reasoning-budget': 'none' })).toBe(true);
  expect(may('/v1/responses', taking.labels)).toBe(false);
  expect(may('/v1/embeddings', {})).toBe(true);
  expect(may('/v1/chat/completions', {}, consumer)).toBe(true);
});

test('batches that are begun at once are no more than may be open', async () => {
  const { key, id: keyId } = await seedKey('consumer');
  const owner = `key:${keyId}`;
  const row = { owner, createdBy: keyId, createdAt: 1, open: true, summary: {} };
  const rows = Array.from({ length: 98 }, (_, n) => ({ ...row, id: `batch_open_${n}` }));
  for (
    let at = 0;
    at < rows.length;
    at += 14 // D1 binds at most 100 values
  )
    await database(worker)
      .insert(batches)
      .values(rows.slice(at, at + 14));
  const body = { input_file_id: 'file-none', endpoint: '/v1/chat/completions', completion_window: '24h' };
  const answers = await Promise.all(Array.from({ length: 6 }, () => knock('POST', '/v1/batches', { key, body })));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 429, 429, 429, 429]);
});

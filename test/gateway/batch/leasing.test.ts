/** Lines of batches whose models were taken away from their account after the input was checked. */
import { expect, test } from 'vitest';
import { type Account, BOOTSTRAP } from '../../../gateway/accounts/account.ts';
import { NO_SETTINGS, type Settings } from '../../../gateway/accounts/settings.ts';
import { leaseOfModels } from '../../../gateway/batch/leases/leasing.ts';
import type { Env } from '../../../gateway/env.ts';
import type { View } from '../../../gateway/registry/snapshot.ts';
import type { RegistryEntry } from '../../../shared/lattice/node.ts';

const entry = {
  session: 's',
  provider: 'lab',
  issuer: 'local',
  state: 'SERVING',
  models: [{ id: 'm', state: 'ready' }],
} as unknown as RegistryEntry;
const consumer: Account = { ...BOOTSTRAP, role: 'consumer', keyId: 'key_1', projectId: 'proj_1' };

/** How many lines of a batch of `account` a node of the model is given. */
async function leased(account: Account, settings: Partial<Settings>): Promise<number> {
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
  } as unknown as View;
  await leaseOfModels(env, { entry, view }, ['m'], undefined);
  return granted.length;
}

test('a node gets lines of a batch for as long as its account may use the model', async () => {
  expect(await leased(consumer, {})).toBe(1);
  expect(await leased(consumer, { catalogue: { m: { access: ['proj_1'] } } })).toBe(1);
});

test('no line is leased of a model that was kept for others since, that ended, or that the key may use no more', async () => {
  expect(await leased(consumer, { catalogue: { m: { access: ['proj_2'] } } })).toBe(0);
  expect(await leased(consumer, { catalogue: { m: { sunset_at: Date.now() - 1 } } })).toBe(0);
  const restrictions = [{ models: ['n'], endpoints: undefined, trustedProviders: undefined, data: undefined }];
  expect(await leased({ ...consumer, restrictions }, {})).toBe(0);
});

import { afterEach, expect, test, vi } from 'vitest';
import { verifyToken } from '../../../gateway/accounts/login/oidc.ts';
import { issuersSchema } from '../../../gateway/accounts/login/oidc-config.ts';

afterEach(() => vi.restoreAllMocks());

test('a provider that fails is asked once a second, however many tokens of strangers name it', async () => {
  const asked = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => new Response('', { status: 500 }));
  const [config] = issuersSchema.parse([{ issuer: 'https://down.example.org', name: 'Down', client_id: 'opentela' }]);
  if (config === undefined) throw new Error('no issuer');
  const now = Date.now();
  const verify = (at: number) => verifyToken(config, 'a.b.c', 'audience', at);
  for (let i = 0; i < 5; i++) await expect(verify(now + i)).rejects.toMatchObject({ status: 503 });
  expect(asked).toHaveBeenCalledTimes(1);
  await expect(verify(now + 1_000)).rejects.toMatchObject({ status: 503 });
  expect(asked).toHaveBeenCalledTimes(2);
});

import { afterEach, expect, test, vi } from 'vitest';
import { verifyToken } from '../../../gateway/accounts/login/oidc.ts';
import { issuersSchema } from '../../../gateway/accounts/login/oidc-config.ts';

afterEach(() => vi.restoreAllMocks());

const SET_BACK_MS = 600_000;

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
  await expect(verify(now - SET_BACK_MS)).rejects.toMatchObject({ status: 503 });
  expect(asked, 'the clock was set back').toHaveBeenCalledTimes(3);
});

test('if the clock is set back, a provider’s endpoints and keys are requested again', async () => {
  const issuer = 'https://up.example.org';
  const [authorization_endpoint, token_endpoint, jwks_uri] = ['auth', 'token', 'jwks'].map(
    (path) => `${issuer}/${path}`,
  );
  const discovery = { issuer, authorization_endpoint, token_endpoint, jwks_uri };
  const asked: string[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (url) => {
    asked.push(String(url));
    return Response.json(url === jwks_uri ? { keys: [] } : discovery);
  });
  const [config] = issuersSchema.parse([{ issuer, name: 'Up', client_id: 'opentela' }]);
  if (config === undefined) throw new Error('no issuer');
  const now = Date.now();
  for (const at of [now, now + 1_000, now - SET_BACK_MS])
    await expect(verifyToken(config, 'a.b.c', 'audience', at)).rejects.toMatchObject({ status: 401 });
  const both = [`${issuer}/.well-known/openid-configuration`, jwks_uri];
  expect(asked).toEqual([...both, ...both]);
});

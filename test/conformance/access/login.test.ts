/** Institutional login against a real identity provider: browsers by code and PKCE, programs by bearer tokens. */
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { AUDIENCE, Browser, CLIENT_ID, CLIENT_SECRET, Identity, newKey } from '../../support/identity.ts';
import { atEnd, endAll, eventually, freePort } from '../../support/processes.ts';
import { chatBody, envelopeOf, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
let identity: Identity;
let config: Record<string, unknown>;
let project: string;
const people = {
  ada: { name: 'Ada Lovelace', email: 'ada@example.org', groups: ['staff', 'physics'] },
  bob: { name: 'Bob\u0007\u001b[2J', groups: ['students'] },
  eve: { name: 'Eve' },
  pat: { name: 'Pat', groups: ['cluster-admins'] },
};

beforeAll(async () => {
  const [port, identityPort] = [await freePort('127.0.0.1'), await freePort('127.0.0.1')];
  const issuer = `http://127.0.0.1:${identityPort}`;
  const secrets = JSON.stringify({ [issuer]: CLIENT_SECRET });
  cluster = await openTestCluster({ gateway: { port, env: { OIDC_CLIENT_SECRETS: secrets } } });
  identity = await Identity.start({ redirectUri: `${cluster.gateway.url}/login/callback`, people, port: identityPort });
  const made = await cluster.gateway.admin('POST', 'projects', { name: 'Physics' });
  project = (made as { id: string }).id;
  config = {
    issuer,
    name: 'The university',
    client_id: CLIENT_ID,
    audience: AUDIENCE,
    admits: 'mapped',
    role_claim: 'groups',
    roles: {
      staff: { role: 'operator' },
      students: { role: 'consumer' },
      'cluster-admins': { role: 'provider', provider: 'lab' },
    },
    project_claim: 'groups',
    projects: { physics: project },
  };
  await cluster.gateway.admin('PATCH', 'settings', { oidc: [config] });
});
afterAll(endAll);

const at = (path: string) => `${cluster.gateway.url}${path}`;
const SESSION = 'otela-session';

async function loggedIn(name: string): Promise<Browser> {
  const browser = new Browser(name);
  const { url, response } = await browser.go(at('/login?return_to=/admin/me'));
  expect(url, await response.clone().text()).toBe(at('/admin/me'));
  expect(response.status).toBe(200);
  return browser;
}
/** A mock provider. It serves its metadata; if `metadata` returns undefined, it sends a response without an end. */
async function metadataServer(metadata: (issuer: string) => object | undefined) {
  const seen = { url: '', asked: [] as string[], open: 0, written: 0 };
  const server = createServer((request, response) => {
    seen.asked.push(request.url ?? '');
    const answer = metadata(seen.url);
    response.setHeader('content-type', 'application/json');
    if (answer !== undefined) return void response.end(JSON.stringify(answer));
    const piece = Buffer.alloc(64 * 1024, ' ');
    const write = () => {
      let more = true;
      while (more && !response.destroyed) {
        seen.written += piece.length;
        more = response.write(piece);
      }
    };
    response.on('drain', write);
    write();
  });
  server.on('connection', (socket) => {
    seen.open++;
    socket.once('close', () => seen.open--);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const address = server.address();
  seen.url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  return seen;
}
const me = async (browser: Browser) => (await browser.once(at('/admin/me'))).json() as Promise<Record<string, unknown>>;

it('somebody logs in, is who their claims say, and logs out', async () => {
  const browser = await loggedIn('ada');
  expect(await me(browser)).toMatchObject({ role: 'operator', login: true, project_id: project });
  const users = (await cluster.gateway.admin('GET', 'users')) as { data: object[] };
  expect(users.data).toEqual([
    expect.objectContaining({
      name: 'Ada Lovelace',
      email: 'ada@example.org',
      subject: 'ada',
      issuer: identity.issuer,
    }),
  ]);
  expect((await browser.once(at('/admin/keys'))).status).toBe(200);
  const token = browser.cookie(at('/'), SESSION);
  const out = await browser.once(at('/logout'), { method: 'POST', headers: { origin: at('') } });
  expect(out.status).toBe(204);
  expect(browser.cookie(at('/'), SESSION)).toBeUndefined();
  browser.setCookie(at('/'), SESSION, token ?? '');
  expect((await browser.once(at('/admin/me'))).status).toBe(401);
});

it('who is no operator makes and revokes keys of their own and sees no others', async () => {
  const bob = await loggedIn('bob');
  expect(await me(bob)).toMatchObject({ role: 'consumer', login: true });
  const json = (body: object, method = 'POST') => ({
    method,
    body: JSON.stringify(body),
    headers: { origin: at(''), 'content-type': 'application/json' },
  });
  const made = await bob.once(at('/admin/keys'), json({ name: 'laptop', models: ['*'] }));
  expect(made.status).toBe(201);
  const key = (await made.json()) as { id: string; key: string; user_id: string };
  expect(
    (
      await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }), {
        headers: { authorization: `Bearer ${key.key}` },
      })
    ).status,
  ).toBe(200);
  const list = (await (await bob.once(at('/admin/keys'))).json()) as { data: { id: string }[] };
  expect(list.data.map(({ id }) => id)).toEqual([key.id]);
  for (const body of [
    { name: 'a', role: 'operator' },
    { name: 'a', role: 'provider', provider: 'lab' },
    { name: 'a', user_id: 'user_somebody' },
    { name: 'a', project_id: project },
    { name: 'a', limits: { requests_per_minute: 1_000_000 } },
    { name: 'a', no_track: true },
  ]) {
    expect((await bob.once(at('/admin/keys'), json(body))).status, JSON.stringify(body)).toBe(403);
  }
  expect((await bob.once(at(`/admin/keys/${key.id}`), json({ limits: null }, 'PATCH'))).status).toBe(403);
  const others = (await cluster.gateway.admin('GET', 'keys')) as { data: { id: string }[] };
  const other = others.data.find(({ id }) => id !== key.id)?.id;
  for (const method of ['GET', 'DELETE']) {
    const headers = { origin: at('') };
    expect((await bob.once(at(`/admin/keys/${other}`), { method, headers })).status).toBe(404);
  }
  expect((await bob.once(at('/admin/users'))).status).toBe(403);
  // A leaked key cannot create more keys.
  const byKey = { ...json({ name: 'more' }), headers: { authorization: `Bearer ${key.key}` } };
  expect((await fetch(at('/admin/keys'), byKey)).status).toBe(403);
  expect((await bob.once(at(`/admin/keys/${key.id}`), { method: 'DELETE', headers: { origin: at('') } })).status).toBe(
    200,
  );
});

it('a provider’s people come in as such', async () => {
  const pat = await loggedIn('pat');
  expect(await me(pat)).toMatchObject({ role: 'provider', provider: 'lab' });
  const headers = { origin: at('') };
  const made = await pat.once(at('/admin/join-tokens'), { method: 'POST', body: '{}', headers });
  expect(await made.json()).toMatchObject({ provider: 'lab', token: expect.stringContaining('otela-join-') });
});

it('whom nothing maps is not admitted, and no user is made of them', async () => {
  const { response } = await new Browser('eve').go(at('/login'));
  expect(response.status).toBe(403);
  expect(JSON.stringify(await cluster.gateway.admin('GET', 'users'))).not.toContain('"eve"');
});

it('a session changes nothing for another site', async () => {
  const ada = await loggedIn('ada');
  for (const headers of [
    {},
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site', origin: at('') },
    { 'sec-fetch-site': 'same-site' },
  ]) {
    const init = {
      method: 'POST',
      body: JSON.stringify({ name: 'forged' }),
      headers: new Headers(Object.entries(headers)),
    };
    expect((await ada.once(at('/admin/keys'), init)).status, JSON.stringify(headers)).toBe(403);
  }
  const own = { method: 'POST', body: JSON.stringify({ name: 'own' }), headers: { 'sec-fetch-site': 'same-origin' } };
  expect((await ada.once(at('/admin/keys'), own)).status).toBe(201);
});

it('a callback is good once, in the browser that began, with its own state and code', async () => {
  const browser = new Browser('ada');
  const begun = await browser.once(at('/login'));
  const authorization = new URL(begun.headers.get('location') ?? '');
  expect(authorization.searchParams.get('code_challenge_method')).toBe('S256');
  expect(authorization.searchParams.get('nonce')).toMatch(/^[\w-]{43}$/);
  expect(begun.headers.get('set-cookie')).toMatch(/HttpOnly; SameSite=Lax/);
  const isBack = (next: string) => next.startsWith(at('/login/callback'));
  const back = (await browser.go(authorization.href, isBack)).url;
  const refused = async (who: Browser, url: string) => {
    const response = await who.once(url);
    expect(response.status).toBe(401);
    expect(response.headers.get('set-cookie') ?? '').not.toContain(SESSION);
  };
  await refused(new Browser('ada'), back);
  const forged = new Browser('ada');
  for (const cookie of ['x', 'a.b', browser.cookie(at('/'), 'otela-login')?.replace(/^.{8}/, 'AAAAAAAA') ?? '']) {
    forged.setCookie(at('/'), 'otela-login', cookie);
    await refused(forged, back);
  }
  const sealed = browser.cookie(at('/'), 'otela-login') ?? '';
  for (const [name, value] of [
    ['state', 'x'.repeat(43)],
    ['iss', 'https://evil.example'],
    ['code', 'stolen'],
    ['error', 'access_denied'],
  ] as const) {
    const mixed = new URL(back);
    mixed.searchParams.set(name, value);
    browser.setCookie(at('/'), 'otela-login', sealed);
    await refused(browser, mixed.href);
    // That attempt ended the login, so there is nothing left to try with.
    await refused(browser, back);
  }
  const nameless = new URL(back);
  nameless.searchParams.delete('iss');
  browser.setCookie(at('/'), 'otela-login', sealed);
  await refused(browser, nameless.href);
  browser.setCookie(at('/'), 'otela-login', sealed);
  await refused(browser, back.replace('/login/callback', '/login/callback/0123456789abcdef'));
  // The code of another person's login, under the thief's own state: the provider knows which challenge the code
  // belongs to.
  const [victim, thief] = [new Browser('ada'), new Browser('bob')];
  const stolen = new URL((await victim.go(at('/login'), isBack)).url).searchParams.get('code') ?? '';
  const mine = new URL((await thief.go(at('/login'), isBack)).url);
  mine.searchParams.set('code', stolen);
  await refused(thief, mine.href);
});

it('a second provider whose answers do not name it has a callback address of its own', async () => {
  const other = await metadataServer((issuer) => ({
    issuer,
    authorization_endpoint: `${issuer}/auth`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/jwks`,
  }));
  await cluster.gateway.admin('PATCH', 'settings', { oidc: [config, { ...config, issuer: other.url, name: 'Other' }] });
  const browser = new Browser('ada');
  const begun = await browser.once(at(`/login?issuer=${encodeURIComponent(other.url)}`));
  const sent = new URL(begun.headers.get('location') ?? '').searchParams;
  const callback = sent.get('redirect_uri') ?? '';
  expect(callback).toMatch(new RegExp(`^${at('/login/callback')}/[0-9a-f]{16}$`));
  // A code of the first provider that arrives at the common address is not sent to the second provider.
  const mixed = await browser.once(at(`/login/callback?code=stolen&state=${sent.get('state')}`));
  expect([mixed.status, other.asked]).toEqual([401, ['/.well-known/openid-configuration']]);
  await cluster.gateway.admin('PATCH', 'settings', { oidc: [config] });
});

it('a provider that answers without end is given up, and no more is read than fits', async () => {
  const endless = await metadataServer(() => undefined);
  await cluster.gateway.admin('PATCH', 'settings', {
    oidc: [config, { ...config, issuer: endless.url, name: 'Endless' }],
  });
  const response = await new Browser('ada').once(at(`/login?issuer=${encodeURIComponent(endless.url)}`));
  expect(response.status).toBe(503);
  expect(await envelopeOf(response)).toMatchObject({
    code: 'server_is_overloaded',
    message: expect.stringContaining('524288'),
  });
  await eventually('its connection is closed', 5_000, () => (endless.open === 0 ? true : undefined));
  expect(endless.written).toBeLessThan(32 * 1024 * 1024);
  await cluster.gateway.admin('PATCH', 'settings', { oidc: [config] });
});

it.each([['//evil.example'], ['/\\evil.example'], ['https://evil.example'], ['/%0d%0ax: y\r\nz: 1']])(
  'a login leads back to this site, not to %j',
  async (target) => {
    const { url } = await new Browser('ada').go(at(`/login?return_to=${encodeURIComponent(target)}`));
    expect(new URL(url).host).toBe(new URL(at('/')).host);
  },
);

const asked = async (token: string) => {
  const init = { headers: { authorization: `Bearer ${token}` } };
  return cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }), init);
};

it('a bearer token of the issuer is as good as a key, and is verified once', async () => {
  const token = await identity.token({ groups: ['students'], sub: 'carl' });
  await eventually('the issuer known', 6_000, async () => ((await asked(token)).status === 200 ? true : undefined));
  const before = identity.keysAsked;
  for (let n = 0; n < 5; n++) expect((await asked(token)).status).toBe(200);
  expect(identity.keysAsked).toBe(before);
  const mine = await fetch(at('/admin/me'), { headers: { authorization: `Bearer ${token}` } });
  expect(await mine.json()).toMatchObject({ role: 'consumer', login: true });
});

it('tokens that are not what they should be are 401, each with its reason, and reach nobody', async () => {
  const stranger = await newKey();
  const now = Math.floor(Date.now() / 1000);
  const groups = ['staff'];
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const payload = { iss: identity.issuer, aud: AUDIENCE, sub: 'ada', exp: now + 600, groups };
  const good = await identity.token({ groups });
  const [head = '', , signature = ''] = good.split('.');
  const cases: [string, string][] = [
    ['alg none', `${part({ alg: 'none' })}.${part(payload)}.`],
    ['a changed payload', `${head}.${part({ ...payload, sub: 'root' })}.${signature}`],
    ['another audience', await identity.token({ groups, aud: 'https://other' })],
    ['the audience of logins', await identity.token({ groups, aud: CLIENT_ID })],
    ['expired', await identity.token({ groups, exp: now - 120 })],
    ['not yet valid', await identity.token({ groups, nbf: now + 600 })],
    ['no expiry', await identity.token({ groups, exp: undefined })],
    ['nobody', await identity.token({ groups, sub: undefined })],
    ['another issuer', await identity.token({ groups, iss: 'https://evil.example' })],
    ['a key of nobody', await identity.token({ groups }, { kid: 'unknown' }, stranger.key)],
    ['a key under a known name', await identity.token({ groups }, {}, stranger.key)],
    ['not admitted', await identity.token({ groups: ['nobody'], sub: 'mallory' })],
  ];
  const before = cluster.engine.requests.length;
  for (const [what, token] of cases) {
    const response = await asked(token);
    expect(response.status, what).toBe(401);
    expect((await envelopeOf(response)).code, what).toBe('invalid_api_key');
  }
  expect(cluster.engine.requests.length).toBe(before);
  const skewed = await identity.token({ groups: ['students'], sub: 'late', exp: now - 30 });
  expect((await asked(skewed)).status, 'a clock that is half a minute off').toBe(200);
});

it('a rotated key of the issuer is fetched when a token needs it', async () => {
  const old = await identity.token({ groups: ['students'], sub: 'dora' });
  expect((await asked(old)).status).toBe(200);
  await identity.rotate();
  await eventually('the new key', 40_000, async () => {
    const response = await asked(await identity.token({ groups: ['students'], sub: 'dora' }));
    return response.status === 200 ? true : undefined;
  });
});

it('a disabled user is out within seconds: session, token and keys', async () => {
  const bob = await loggedIn('bob');
  const token = await identity.token({ groups: ['students'], sub: 'bob' });
  expect((await asked(token)).status).toBe(200);
  const { user_id } = (await me(bob)) as { user_id: string };
  await cluster.gateway.admin('PATCH', `users/${user_id}`, { disabled: true });
  expect((await bob.once(at('/admin/me'))).status).toBe(401);
  await eventually('the token refused', 5_000, async () => ((await asked(token)).status === 401 ? true : undefined));
  const { response } = await new Browser('bob').go(at('/login'));
  expect(response.status).toBe(403);
});

it('with the provider gone unknown tokens are 503, and known ones go on', async () => {
  const known = await identity.token({ groups: ['students'], sub: 'fay' });
  expect((await asked(known)).status).toBe(200);
  await cluster.gateway.admin('PATCH', 'settings', {
    oidc: [config, { ...config, issuer: 'http://127.0.0.1:9', name: 'Gone' }],
  });
  const gone = await identity.token({ iss: 'http://127.0.0.1:9', groups: ['students'] });
  await eventually('503', 5_000, async () => ((await asked(gone)).status === 503 ? true : undefined));
  expect((await asked(known)).status).toBe(200);
  const page = await fetch(at('/login'));
  expect(await page.text()).toContain('Gone');
  expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
});

it('no key, token, cookie or secret stands in the gateway’s output', () => {
  expect(cluster.gateway.process.output).not.toMatch(/sk-otela-|otela-join-|eyJ[\w-]{10}|otela-session=|code_verifier/);
  expect(cluster.gateway.process.output).not.toContain(CLIENT_SECRET);
});

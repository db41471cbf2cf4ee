/**
 * Login with a real Keycloak: codes with PKCE, roles by groups, access tokens, a rotated key, a disabled user. Runs if
 * OTELA_TEST_KEYCLOAK is the address of one that was started with `kc.sh start-dev` and the administrator admin/admin.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { AUDIENCE, Browser, CLIENT_ID, CLIENT_SECRET } from '../../support/identity.ts';
import { endAll, eventually, freePort } from '../../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const KEYCLOAK = process.env.OTELA_TEST_KEYCLOAK;
const WHY_NOT = 'OTELA_TEST_KEYCLOAK is not the address of a Keycloak';
const REALM = `opentela-${crypto.randomUUID()}`;
const PASSWORD = 'pw';
const GROUPS = { ada: ['staff'], bob: ['students'], eve: [] };
const KEY_PROVIDER = 'org.keycloak.keys.KeyProvider';

const tokenSchema = z.object({ access_token: z.string() });
const componentsSchema = z.array(z.looseObject({ id: z.string(), providerId: z.string() }));
const usersSchema = z.array(z.object({ id: z.string(), username: z.string() }));

let cluster: TestCluster;
let issuer = '';

const at = (path: string) => `${cluster.gateway.url}${path}`;

async function token(realm: string, fields: Record<string, string>): Promise<string> {
  const body = new URLSearchParams({ grant_type: 'password', scope: 'openid', ...fields });
  const response = await fetch(`${KEYCLOAK}/realms/${realm}/protocol/openid-connect/token`, { method: 'POST', body });
  expect(response.status, await response.clone().text()).toBe(200);
  return tokenSchema.parse(await response.json()).access_token;
}

/** A call of Keycloak's administration. */
async function admin(method: string, path: string, body?: object): Promise<unknown> {
  const bearer = await token('master', { client_id: 'admin-cli', username: 'admin', password: 'admin' });
  const response = await fetch(`${KEYCLOAK}/admin/realms${path}`, {
    method,
    headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  expect(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`).toBe(true);
  const text = await response.text();
  return text === '' ? undefined : JSON.parse(text);
}

function realm(redirectUri: string): object {
  const mapper = (name: string, protocolMapper: string, config: object) => ({
    name,
    protocol: 'openid-connect',
    protocolMapper,
    config: { 'access.token.claim': 'true', 'id.token.claim': 'true', ...config },
  });
  const client = {
    clientId: CLIENT_ID,
    secret: CLIENT_SECRET,
    redirectUris: [redirectUri],
    directAccessGrantsEnabled: true,
    protocolMappers: [
      mapper('groups', 'oidc-group-membership-mapper', { 'claim.name': 'groups', 'full.path': 'false' }),
      mapper('audience', 'oidc-audience-mapper', { 'included.custom.audience': AUDIENCE, 'id.token.claim': 'false' }),
    ],
  };
  const users = Object.entries(GROUPS).map(([username, groups]) => ({
    username,
    email: `${username}@example.org`,
    emailVerified: true,
    firstName: username,
    lastName: 'Lovelace',
    enabled: true,
    groups: groups.map((name) => `/${name}`),
    credentials: [{ type: 'password', value: PASSWORD }],
  }));
  const groups = [{ name: 'staff' }, { name: 'students' }];
  return { realm: REALM, enabled: true, sslRequired: 'none', clients: [client], groups, users };
}

beforeAll(async () => {
  if (KEYCLOAK === undefined) return;
  issuer = `${KEYCLOAK}/realms/${REALM}`;
  const port = await freePort('127.0.0.1');
  const secrets = JSON.stringify({ [issuer]: CLIENT_SECRET });
  cluster = await openTestCluster({ gateway: { port, env: { OIDC_CLIENT_SECRETS: secrets } } });
  await admin('POST', '', realm(at('/login/callback')));
  const roles = { staff: { role: 'operator' }, students: { role: 'consumer' } };
  const oidc = { issuer, name: 'Keycloak', client_id: CLIENT_ID, audience: AUDIENCE, admits: 'mapped' };
  await cluster.gateway.admin('PATCH', 'settings', { oidc: [{ ...oidc, role_claim: 'groups', roles }] });
});
afterAll(async () => {
  if (KEYCLOAK !== undefined) await admin('DELETE', `/${REALM}`);
  await endAll();
});

/** Fills in Keycloak's page, and follows to the end. */
async function login(name: string) {
  const browser = new Browser(name);
  const { response } = await browser.go(at('/login?return_to=/admin/me'));
  const form = /<form[^>]*action="([^"]+)"/.exec(await response.text())?.[1]?.replaceAll('&amp;', '&');
  if (form === undefined) throw new Error('Keycloak shows no form');
  const body = new URLSearchParams({ username: name, password: PASSWORD, credentialId: '' });
  const answer = await browser.once(form, { method: 'POST', body });
  const back = answer.headers.get('location');
  if (back === null) throw new Error(`Keycloak did not accept the password: ${answer.status}`);
  return { browser, ...(await browser.go(back)) };
}

const access = (name: string) =>
  token(REALM, { client_id: CLIENT_ID, client_secret: CLIENT_SECRET, username: name, password: PASSWORD });

const ask = (bearer: string) =>
  cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }), { headers: { authorization: `Bearer ${bearer}` } });

it('groups decide the role at a login, and a logout ends the session', async ({ skip }) => {
  skip(KEYCLOAK === undefined, WHY_NOT);
  const { browser, url, response } = await login('ada');
  expect([url, response.status]).toEqual([at('/admin/me'), 200]);
  expect(await response.json()).toMatchObject({ role: 'operator', login: true });
  expect(await (await login('bob')).response.json()).toMatchObject({ role: 'consumer', login: true });
  expect((await login('eve')).response.status).toBe(403);
  const out = await browser.once(at('/logout'), { method: 'POST', headers: { origin: at('') } });
  expect(out.status).toBe(204);
  expect((await browser.once(at('/admin/me'))).status).toBe(401);
});

it('an access token works as a key, and one for another audience does not', async ({ skip }) => {
  skip(KEYCLOAK === undefined, WHY_NOT);
  expect((await ask(await access('bob'))).status).toBe(200);
  expect((await ask(await access('eve'))).status).toBe(401);
  const other = await token('master', { client_id: 'admin-cli', username: 'admin', password: 'admin' });
  expect((await ask(other)).status).toBe(401);
});

it('after a rotation, tokens of the new key are accepted, and logins work', async ({ skip }) => {
  skip(KEYCLOAK === undefined, WHY_NOT);
  const old = await access('bob');
  expect((await ask(old)).status).toBe(200);
  const keys = componentsSchema.parse(await admin('GET', `/${REALM}/components?type=${KEY_PROVIDER}`));
  const config = { priority: ['200'], enabled: ['true'], active: ['true'], algorithm: ['RS256'] };
  const made = { name: 'next', providerId: 'rsa-generated', providerType: KEY_PROVIDER, config };
  await admin('POST', `/${REALM}/components`, made);
  for (const { id, providerId } of keys)
    if (providerId === 'rsa-generated') await admin('DELETE', `/${REALM}/components/${id}`);
  const kid = (jwt: string) => JSON.parse(Buffer.from(jwt.split('.')[0] ?? '', 'base64url').toString()).kid;
  const fresh = await access('bob');
  expect(kid(fresh)).not.toBe(kid(old));
  await eventually('the new key', 60_000, async () => ((await ask(fresh)).status === 200 ? true : undefined));
  expect((await login('ada')).response.status).toBe(200);
});

it('a user that Keycloak disabled gets no new session and no new token', async ({ skip }) => {
  skip(KEYCLOAK === undefined, WHY_NOT);
  const [bob] = usersSchema.parse(await admin('GET', `/${REALM}/users?username=bob&exact=true`));
  await admin('PUT', `/${REALM}/users/${bob?.id}`, { enabled: false });
  await expect(login('bob')).rejects.toThrow('did not accept');
  await expect(access('bob')).rejects.toThrow();
});

/** Logins with a dishonest provider or browser: none opens a session. */
import { createHmac } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { knock } from '../admin/support.ts';
import { AUDIENCE, CLIENT_ID, HostileIssuer, json, newKey, part, seconds } from './hostile-issuer.ts';
import { seedKey } from './seed.ts';

let one: HostileIssuer;
let other: HostileIssuer;
beforeAll(async () => {
  [one, other] = [await HostileIssuer.open(), await HostileIssuer.open()];
  const { key } = await seedKey('operator');
  const answer = await knock('PATCH', '/admin/settings', { key, body: { oidc: [one.config, other.config] } });
  expect(answer.status, await answer.text()).toBe(200);
});

interface Begun {
  state: string;
  nonce: string;
  cookie: string;
  callback: string;
}

async function begin(issuer = one, query = ''): Promise<Begun> {
  const answer = await knock('GET', `/login?issuer=${encodeURIComponent(issuer.issuer)}${query}`);
  const sent = new URL(answer.headers.get('location') ?? '').searchParams;
  const callback = new URL(sent.get('redirect_uri') ?? '').pathname;
  const cookie = (answer.headers.getSetCookie()[0] ?? '').split(';', 1)[0] ?? '';
  return { state: sent.get('state') ?? '', nonce: sent.get('nonce') ?? '', cookie, callback };
}

/** Returns to the gateway with a code for which `issuer` gives this token. */
async function comeBack({ state, cookie, callback }: Begun, token: string, issuer = one, more = '') {
  issuer.answers.set('/token', json({ id_token: token, access_token: 'x', token_type: 'Bearer' }));
  return knock('GET', `${callback}?code=c&state=${state}${more}`, { headers: { cookie } });
}
const hasSession = (answer: Response) => answer.headers.getSetCookie().some((text) => /otela-session=[^;]/.test(text));

type Make = (begun: Begun) => Promise<string>;
const said =
  (claims: (begun: Begun) => object): Make =>
  (begun) =>
    one.token({ aud: CLIENT_ID, nonce: begun.nonce, ...claims(begun) });

test('an honest login opens a session', async () => {
  const begun = await begin();
  const answer = await comeBack(begun, await said(() => ({ azp: CLIENT_ID }))(begun));
  expect(answer.status, await answer.text()).toBe(302);
  expect(hasSession(answer)).toBe(true);
});

const TOKENS: [string, Make][] = [
  ['the nonce of another login', said(() => ({ nonce: 'n'.repeat(43) }))],
  ['no nonce', said(() => ({ nonce: undefined }))],
  ['a list of nonces', said(({ nonce }) => ({ nonce: [nonce] }))],
  ['an empty nonce', said(() => ({ nonce: '' }))],
  ['another client’s name as the party it is for', said(() => ({ azp: 'other' }))],
  ['several parties that it is for', said(() => ({ azp: [CLIENT_ID, 'other'] }))],
  ['nobody as the party it is for', said(() => ({ azp: null }))],
  ['another client as its audience', said(() => ({ aud: 'other' }))],
  ['the API as its audience', said(() => ({ aud: AUDIENCE }))],
  ['the name of the other provider', said(() => ({ iss: other.issuer }))],
  ['an end that has passed', said(() => ({ exp: seconds() - 120 }))],
  ['no subject', said(() => ({ sub: undefined }))],
  [
    'a signature of the other provider',
    (begun) => other.token({ iss: one.issuer, aud: CLIENT_ID, nonce: begun.nonce }),
  ],
  ['no signature', async ({ nonce }) => `${part({ alg: 'none' })}.${part(one.claims({ aud: CLIENT_ID, nonce }))}.`],
  [
    'a signature by the client’s secret',
    async ({ nonce }) => {
      const text = `${part({ alg: 'HS256' })}.${part(one.claims({ aud: CLIENT_ID, nonce }))}`;
      return `${text}.${createHmac('sha256', 'secret').update(text).digest('base64url')}`;
    },
  ],
  [
    'a signature by a key in its header',
    async ({ nonce }) => {
      const { privateKey, jwk } = await newKey('RS256');
      return one.token({ aud: CLIENT_ID, nonce }, { jwk, kid: undefined as unknown as string }, privateKey);
    },
  ],
  ['five parts', async () => 'a.b.c.d.e'],
  ['nothing', async () => ''],
];
test.each(TOKENS)('no session is opened by a token with %s', async (_, make) => {
  const begun = await begin();
  const answer = await comeBack(begun, await make(begun));
  expect(answer.status).toBe(401);
  expect(hasSession(answer)).toBe(false);
});

const ANSWERS: [string, (begun: Begun) => Promise<Response>][] = [
  ['with the state of another login', async (begun) => comeBack({ ...begun, state: (await begin()).state }, '')],
  ['without a state', async ({ cookie, callback }) => knock('GET', `${callback}?code=c`, { headers: { cookie } })],
  ['in another browser', (begun) => comeBack({ ...begun, cookie: '' }, '')],
  ['with a cookie of another kind', (begun) => comeBack({ ...begun, cookie: begun.cookie.replace('__Host-', '') }, '')],
  ['with its cookie cut', (begun) => comeBack({ ...begun, cookie: begun.cookie.slice(0, -4) }, '')],
  [
    'at the address of the other provider',
    async (begun) => comeBack({ ...begun, callback: (await begin(other)).callback }, ''),
  ],
  ['at the address of a single provider', (begun) => comeBack({ ...begun, callback: '/login/callback' }, '')],
  ['naming the other provider', (begun) => comeBack(begun, '', one, `&iss=${encodeURIComponent(other.issuer)}`)],
  ['with an error', (begun) => comeBack(begun, '', one, '&error=access_denied')],
  ['with two states', (begun) => comeBack({ ...begun, state: `x&state=${begun.state}` }, '')],
];
test.each(ANSWERS)('no session is opened by an answer %s, and no code is sent anywhere', async (_, come) => {
  const before = [one, other].map(({ asked }) => asked.filter((path) => path === '/token').length);
  const answer = await come(await begin());
  expect(answer.status).toBe(401);
  expect(hasSession(answer)).toBe(false);
  expect([one, other].map(({ asked }) => asked.filter((path) => path === '/token').length)).toEqual(before);
});

test.each([
  '//evil.example',
  '/\\evil.example',
  '\\/evil.example',
  'https://evil.example',
  'javascript:alert(1)',
  '/\t/evil.example',
  '/%0d%0aset-cookie:x=y',
  ' /x',
  `/${'x'.repeat(600)}`,
  '',
])('a login leads to this site alone, whatever it was to return to: %j', async (target) => {
  const begun = await begin(one, `&return_to=${encodeURIComponent(target)}`);
  const answer = await comeBack(begun, await said(() => ({}))(begun));
  const to = new URL(answer.headers.get('location') ?? '', 'https://gateway.test');
  expect(to.origin).toBe('https://gateway.test');
  expect(to.pathname.startsWith('//')).toBe(false);
  expect(answer.headers.get('set-cookie')).not.toContain('x=y');
});

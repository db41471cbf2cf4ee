/** Tokens, metadata and keys that no honest identity provider sends: each is refused, or does no harm. */
import { env } from 'cloudflare:workers';
import { createHmac } from 'node:crypto';
import { exportSPKI, importJWK } from 'jose';
import { expect, test } from 'vitest';
import { discover, exchangeCode, verifyToken } from '../../../gateway/accounts/login/oidc.ts';
import { tokenAccount } from '../../../gateway/accounts/login/oidc-bearer-token.ts';
import { AUDIENCE, HostileIssuer, json, newKey, part, seconds } from './hostile-issuer.ts';

const verify = (one: HostileIssuer, token: string) => verifyToken(one.config, token, AUDIENCE, Date.now());
type Token = (one: HostileIssuer) => Promise<string>;
const signed =
  (claims: object | (() => object)): Token =>
  (one) =>
    one.token(typeof claims === 'function' ? claims() : claims);
const hmac = (head: object, claims: object, secret: string) => {
  const text = `${part(head)}.${part(claims)}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
};
/** Signed by a key of the attacker, under `header`. */
const forged =
  (header: object, alg = 'RS256'): Token =>
  async (one) => {
    const { privateKey, jwk } = await newKey(alg, { kid: 'good' });
    return one.token({ sub: 'root' }, { alg, ...header, ...('jwk' in header && { jwk }) }, privateKey);
  };

/** The header names no key. */
const NAMELESS: { kid: string } = { kid: undefined as unknown as string };
const REFUSED: [string, Token][] = [
  ['another issuer', signed({ iss: 'https://evil.example' })],
  ['its own name with a slash', async (one) => one.token({ iss: `${one.issuer}/` })],
  ['its own name in capitals', async (one) => one.token({ iss: one.issuer.toUpperCase() })],
  ['a list of issuers', async (one) => one.token({ iss: [one.issuer, 'https://evil.example'] })],
  ['no issuer', signed({ iss: undefined })],
  ['an audience that begins as ours', signed({ aud: `${AUDIENCE}/other` })],
  ['a list without our audience', signed({ aud: ['https://other', 'opentela'] })],
  ['an empty list of audiences', signed({ aud: [] })],
  ['an audience within a list of lists', signed({ aud: [[AUDIENCE]] })],
  ['an audience as a member', signed({ aud: { [AUDIENCE]: true } })],
  ['no audience', signed({ aud: undefined })],
  ['an end 61 s ago', signed(() => ({ exp: seconds() - 61 }))],
  ['an end that is text', signed(() => ({ exp: String(seconds() + 600) }))],
  ['an end that is null', signed({ exp: null })],
  ['no end', signed({ exp: undefined })],
  ['a beginning in 61 s', signed(() => ({ nbf: seconds() + 90 }))],
  ['a beginning that is text', signed({ nbf: '0' })],
  ['no subject', signed({ sub: undefined })],
  ['an empty subject', signed({ sub: '' })],
  ['a subject that is a number', signed({ sub: 4711 })],
  ['a subject that is a list', signed({ sub: ['ada'] })],
  ['alg none', async (one) => `${part({ alg: 'none', kid: 'good' })}.${part(one.claims())}.`],
  ['alg nOnE', async (one) => `${part({ alg: 'nOnE', kid: 'good' })}.${part(one.claims())}.`],
  ['no alg', async (one) => `${part({ kid: 'good' })}.${part(one.claims())}.AAAA`],
  ['a signature that was cut off', async (one) => (await one.token()).replace(/[^.]+$/, '')],
  [
    'a signature of zeros',
    async (one) => (await one.token()).replace(/[^.]+$/, Buffer.alloc(256).toString('base64url')),
  ],
  [
    'another payload',
    async (one) => (await one.token()).replace(/\.[^.]+\./, `.${part(one.claims({ sub: 'root' }))}.`),
  ],
  ['a payload that is a list', async () => `${part({ alg: 'RS256', kid: 'good' })}.${part([1])}.AAAA`],
  [
    'HMAC with the public key as its secret (PEM)',
    async (one) => {
      const key = await importJWK(one.keys[0] ?? {}, 'RS256', { extractable: true });
      const pem = await exportSPKI(key as Parameters<typeof exportSPKI>[0]);
      return hmac({ alg: 'HS256', kid: 'good' }, one.claims({ sub: 'root' }), pem);
    },
  ],
  [
    'HMAC with the modulus as its secret',
    async (one) => hmac({ alg: 'HS256', kid: 'good' }, one.claims(), String(one.keys[0]?.n ?? '')),
  ],
  [
    'HMAC with a symmetric key that the provider publishes',
    async (one) => {
      one.keys.push({ kty: 'oct', kid: 'oct', k: Buffer.from('secret').toString('base64url'), alg: 'HS256' });
      return hmac({ alg: 'HS256', kid: 'oct' }, one.claims(), 'secret');
    },
  ],
  ['a key of the attacker under a known name', forged({})],
  ['a key of the attacker in its header', forged({ jwk: true })],
  ['a key of the attacker at an address in its header', forged({ jku: 'https://evil.example/jwks' })],
  ['a certificate at an address in its header', forged({ x5u: 'https://evil.example/x5u' })],
  ['an elliptic key under the name of an RSA key', forged({}, 'ES256')],
  [
    'an elliptic signature of zeros',
    async (one) => {
      const { jwk } = await newKey('ES256', { kid: 'ec' });
      one.keys.push(jwk);
      const head = part({ alg: 'ES256', kid: 'ec' });
      return `${head}.${part(one.claims())}.${Buffer.alloc(64).toString('base64url')}`;
    },
  ],
  [
    'another form of signature than its key is for',
    async (one) => one.token({}, { alg: 'PS256' }).catch(() => 'a.b.c'),
  ],
  [
    'an extension that must be understood',
    async (one) => {
      const head = part({ alg: 'RS256', kid: 'good', crit: ['exp'], exp: 1 });
      return `${head}.${(await one.token()).split('.').slice(1).join('.')}`;
    },
  ],
  [
    'a payload that is not encoded',
    async (one) => {
      const head = part({ alg: 'RS256', kid: 'good', b64: false, crit: ['b64'] });
      return `${head}.${(await one.token()).split('.').slice(1).join('.')}`;
    },
  ],
  [
    'a key that is for encryption',
    async (one) => {
      const { privateKey, jwk } = await newKey('RS256', { kid: 'enc', use: 'enc' });
      one.keys.push(jwk);
      return one.token({}, { kid: 'enc' }, privateKey);
    },
  ],
  [
    'a key whose operations are others',
    async (one) => {
      const { privateKey, jwk } = await newKey('RS256', { kid: 'ops' });
      const { use: _, ...bare } = jwk;
      one.keys.push({ ...bare, key_ops: ['encrypt'] });
      return one.token({}, { kid: 'ops' }, privateKey);
    },
  ],
  [
    'a name that two keys have',
    async (one) => {
      const { jwk } = await newKey('RS256', { kid: 'good' });
      one.keys.push(jwk);
      return one.token();
    },
  ],
  [
    'no name of a key where there are two',
    async (one) => {
      const { jwk } = await newKey('RS256', { kid: 'other' });
      one.keys.push(jwk);
      return one.token({}, NAMELESS);
    },
  ],
];

test.each(REFUSED)('a token is refused that has %s', async (_, make) => {
  const one = await HostileIssuer.open();
  await expect(verify(one, await make(one))).rejects.toMatchObject({ status: 401 });
});

const TAKEN: [string, () => object][] = [
  ['several audiences, ours among them', () => ({ aud: ['https://other', AUDIENCE] })],
  ['an end 50 s ago: clocks differ', () => ({ exp: seconds() - 50 })],
  ['a beginning in 30 s', () => ({ nbf: seconds() + 30 })],
  ['a time of issue in a year', () => ({ iat: seconds() + 365 * 86_400 })],
];
test.each(TAKEN)('a token is taken that has %s', async (_, claims) => {
  const one = await HostileIssuer.open();
  await expect(verify(one, await one.token(claims()))).resolves.toMatchObject({ sub: 'ada' });
});

test('claims with names of JavaScript’s own properties are ignored', async () => {
  const one = await HostileIssuer.open({
    admits: 'mapped',
    role_claim: 'groups',
    roles: { staff: { role: 'operator' } },
  });
  for (const claims of [
    '{"__proto__":{"groups":["staff"]}}',
    '{"constructor":{"groups":["staff"]}}',
    '{"groups":["__proto__"]}',
  ]) {
    const token = await one.token(JSON.parse(claims) as object);
    await expect(tokenAccount(env, [one.config], token, Date.now()), claims).rejects.toMatchObject({ status: 401 });
  }
});

const DISCOVERIES: [string, (one: HostileIssuer) => () => Response][] = [
  ['another issuer’s name', (one) => json(one.discovery({ issuer: 'https://good.example' }))],
  ['keys without TLS', (one) => json(one.discovery({ jwks_uri: 'http://evil.example/jwks' }))],
  ['keys at no address of the web', (one) => json(one.discovery({ jwks_uri: 'file:///etc/passwd' }))],
  ['a script as its page', (one) => json(one.discovery({ authorization_endpoint: 'javascript:alert(1)' }))],
  ['no keys', (one) => json(one.discovery({ jwks_uri: undefined }))],
  ['a redirect', () => () => new Response(null, { status: 302, headers: { location: 'https://evil.example/' } })],
  ['a redirect that keeps the method', () => () => new Response(null, { status: 308, headers: { location: '/x' } })],
  ['a page', () => () => new Response('<html>', { headers: { 'content-type': 'text/html' } })],
  ['more than half a MiB', (one) => json(one.discovery({ more: 'x'.repeat(600_000) }))],
  ['deep JSON', () => () => new Response(`${'['.repeat(100_000)}${']'.repeat(100_000)}`)],
  ['nothing', () => () => new Response('')],
];
test.each(DISCOVERIES)('metadata with %s is not taken, and is asked for once a second', async (_, make) => {
  const one = await HostileIssuer.open();
  one.answers.set('/.well-known/openid-configuration', make(one));
  const now = Date.now();
  for (let n = 0; n < 5; n++) await expect(discover(one.config, now + n)).rejects.toMatchObject({ status: 503 });
  expect(one.asked).toHaveLength(1);
});

const KEYS: [string, () => Response, number][] = [
  ['a redirect', () => new Response(null, { status: 307, headers: { location: 'https://evil.example/' } }), 503],
  ['more keys than any has', () => Response.json({ keys: Array(101).fill({ kty: 'RSA' }) }), 503],
  ['keys that are none', () => Response.json({ keys: ['a', null] }), 503],
  ['no list', () => Response.json({ keys: { kty: 'RSA' } }), 503],
  ['no key', () => Response.json({ keys: [] }), 401],
  ['keys of an unknown kind', () => Response.json({ keys: [{ kty: 'quantum', kid: 'good' }] }), 401],
  ['half a key', () => Response.json({ keys: [{ kty: 'RSA', kid: 'good', alg: 'RS256' }] }), 401],
  [
    'a key of 512 bits',
    () =>
      Response.json({
        keys: [{ kty: 'RSA', kid: 'good', e: 'AQAB', n: Buffer.alloc(64, 0xff).toString('base64url') }],
      }),
    401,
  ],
];
test.each(KEYS)('keys that are %s verify nothing', async (_, answer, status) => {
  const one = await HostileIssuer.open();
  one.answers.set('/jwks', answer);
  await expect(verify(one, await one.token())).rejects.toMatchObject({ status });
});

const CODES: [string, () => Response, number][] = [
  ['a redirect', () => new Response(null, { status: 307, headers: { location: 'https://evil.example/' } }), 503],
  ['no token', () => Response.json({ access_token: 'x' }), 503],
  ['a list of tokens', () => Response.json({ id_token: ['a.b.c'] }), 503],
  ['a token of 64 KiB', () => Response.json({ id_token: 'a'.repeat(65_536) }), 503],
  ['a refusal', () => Response.json({ error: 'invalid_grant' }, { status: 400 }), 401],
  ['a fault', () => new Response('', { status: 500 }), 503],
];
test.each(CODES)('a code that gives %s gives no login', async (_, answer, status) => {
  const one = await HostileIssuer.open();
  one.answers.set('/token', answer);
  const exchange = { code: 'c', verifier: 'v', redirectUri: 'https://gateway.test/login/callback', secret: 'secret' };
  await expect(exchangeCode(one.config, exchange, Date.now())).rejects.toMatchObject({ status });
});

test('a provider whose keys come slowly is asked eight times at once, however many tokens of strangers name it', async () => {
  const one = await HostileIssuer.open();
  const known = await one.token();
  await verify(one, known);
  const before = one.asked.length;
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  one.answers.set('/jwks', async () => {
    await held;
    return Response.json({ keys: one.keys });
  });
  const later = Date.now() + 60_000;
  const tokens = await Promise.all(Array.from({ length: 50 }, (_, n) => one.token({}, { kid: `unknown-${n}` })));
  const strangers = tokens.map((token) =>
    verifyToken(one.config, token, AUDIENCE, later).catch((error: unknown) => error),
  );
  // Checks that do not wait for the keys are decided by the known keys.
  await Promise.race([...strangers, new Promise((resolve) => setTimeout(resolve, 2_000))]);
  await expect(verifyToken(one.config, known, AUDIENCE, later)).resolves.toMatchObject({ sub: 'ada' });
  expect(one.asked.length - before).toBeLessThanOrEqual(8);
  release();
  for (const answer of await Promise.all(strangers)) expect(answer).toMatchObject({ status: 401 });
});

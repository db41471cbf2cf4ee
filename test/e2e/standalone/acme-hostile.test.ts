/** A certificate authority that lies, and what a gateway keeps about refused orders. */
import { execFileSync } from 'node:child_process';
import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { lstatSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AcmeClient } from '../../../gateway/hosts/node/acme/acme-client.ts';
import { AcmeError } from '../../../gateway/hosts/node/acme/acme-error.ts';
import { newKey, readOrCreateKey, storeCertificate } from '../../../gateway/hosts/node/acme/certificate-files.ts';
import { certificateRequest } from '../../../gateway/hosts/node/acme/certificate-request.ts';
import { OrderRefusals } from '../../../gateway/hosts/node/acme/order-refusals.ts';
import { ordersApartMs } from '../../../gateway/hosts/node/acme/renewal-time.ts';
import { startAuthority } from '../../support/acme/lying-authority.ts';
import { OPENSSL, selfSigned } from '../../support/certificate.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

const NAME = 'llm.otela.test';
const HOUR_MS = 3_600_000;
const PROBLEM = 'urn:ietf:params:acme:error:';

afterEach(endAll);
let directory: string;
beforeEach(async () => {
  directory = await temporaryDirectory();
});

type Lies = Parameters<typeof startAuthority>[0];

/** Orders a certificate for NAME from an authority with these lies. Returns the error and the served challenges. */
async function orderFrom(lies: Lies) {
  const served: string[] = [];
  const { url, asked } = await startAuthority(lies);
  const key = newKey();
  const answers = { add: (token: string, proof: string) => served.push(token, proof), remove: () => served.push('-') };
  const account = { directoryUrl: url, key, email: undefined, binding: undefined };
  const ordered = AcmeClient.open(account, AbortSignal.timeout(60_000)).then((client) =>
    client.order([NAME], certificateRequest(key, [NAME]), answers),
  );
  const error: unknown = await ordered.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  if (!(error instanceof AcmeError)) throw new Error(`no AcmeError: ${String(error)}`);
  return { error, served, asked };
}

const authorization = (challenge: object) => ({
  '/authz': { body: { status: 'pending', identifier: { value: NAME }, challenges: [challenge] } },
});

describe.skipIf(!OPENSSL)('an order', () => {
  const hostile: [string, Lies, RegExp][] = [
    ['an answer without an end', () => ({ '/dir': { body: ' '.repeat(300_000) } }), /more than 262144 bytes/],
    ['a redirect', (url) => ({ '/dir': { status: 302, headers: { location: `${url}/other` } } }), /does not answer/],
    ['text', () => ({ '/dir': { body: '<html>' } }), /answers not as RFC 8555 requires/],
    ['deep JSON', () => ({ '/dir': { body: '['.repeat(100_000) } }), /answers not as RFC 8555 requires/],
    [
      'URLs without TLS',
      (url) => ({ '/dir': { body: { newNonce: url.replace('https', 'http'), newAccount: url, newOrder: url } } }),
      /newNonce: Invalid URL/,
    ],
    ['no nonce', () => ({ '/nonce': { headers: { 'replay-nonce': 'a b' } } }), /gave no nonce/],
    [
      'a nonce that it never accepts',
      () => ({ '/account': { status: 400, body: { type: `${PROBLEM}badNonce` } } }),
      /badNonce/,
    ],
    ['no account', () => ({ '/account': {} }), /gave no account/],
    ['no order', () => ({ '/new': { status: 201, body: {} } }), /gave no order/],
    [
      'a token with a path',
      (url) => authorization({ type: 'http-01', url: `${url}/challenge`, token: '../admin' }),
      /no usable http-01 challenge/,
    ],
    [
      'a token with markup',
      (url) => authorization({ type: 'http-01', url: `${url}/challenge`, token: '<script>' }),
      /no usable http-01 challenge/,
    ],
    ['another challenge', (url) => authorization({ type: 'dns-01', url, token: 'a' }), /no usable http-01 challenge/],
    [
      'a message that controls the terminal',
      () => ({
        '/new': { status: 403, body: { type: `${PROBLEM}unauthorized`, detail: `a\u001b[2J\n${'b'.repeat(9_999)}` } },
      }),
      /unauthorized: a \[2J b{100,480}$/,
    ],
    [
      'an account that is missing',
      (url) => ({
        '/dir': {
          body: { newNonce: url, newAccount: url, newOrder: url, meta: { externalAccountRequired: true } },
        },
      }),
      /set ACME_EAB_KID/,
    ],
  ];
  it.each(hostile)('fails with %s, and serves nothing', async (_, lies, message) => {
    const { error, served, asked } = await orderFrom(lies);
    expect(error.message).toMatch(message);
    expect(served).toEqual([]);
    expect(asked).not.toContain('/other');
    expect(asked.length).toBeLessThan(25);
  });

  it('says why the authority could not confirm the name, and serves the challenge no longer', async () => {
    const problem = { type: `${PROBLEM}connection`, detail: 'timeout at port 80' };
    let asked = 0;
    const { error, served } = await orderFrom((url) => {
      const challenge = { type: 'http-01', url: `${url}/challenge`, token: 'token' };
      const answer = (status: string) => ({
        status,
        identifier: { value: NAME },
        challenges: [{ ...challenge, ...(status === 'invalid' && { error: problem }) }],
      });
      return {
        '/authz': {
          get body() {
            return answer(asked++ === 0 ? 'pending' : 'invalid');
          },
        },
      };
    });
    expect(error.message).toBe(`the certificate authority refused ${NAME}: connection: timeout at port 80`);
    expect(served).toEqual(['token', expect.stringMatching(/^token\.[\w-]{43}$/), '-']);
  });

  it.each([
    ['120', 120_000],
    ['999999999', 7 * 24 * HOUR_MS],
    ['soon', 0],
  ])('waits after a rate limit for retry-after: %s', async (header, ms) => {
    const { error } = await orderFrom(() => ({
      '/new': { status: 429, headers: { 'retry-after': header }, body: { type: `${PROBLEM}rateLimited` } },
    }));
    expect([error.problem, error.retryAfterMs]).toEqual(['rateLimited', ms]);
  });

  it.each([[1], [3], [20]])('requests a certificate for %i names', (count) => {
    const names = Array.from({ length: count }, (_, n) => `n${n}.${'a'.repeat(60)}.otela.test`);
    const key = newKey();
    const csr = certificateRequest(key, names);
    const text = execFileSync('openssl', ['req', '-inform', 'DER', '-noout', '-text', '-verify'], {
      input: csr,
      encoding: 'utf8',
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    expect(text.match(/DNS:([\w.]+)/g)).toEqual(names.map((name) => `DNS:${name}`));
    expect(text).toContain('X509v3 Subject Alternative Name: critical');
    const pem = execFileSync('openssl', ['req', '-inform', 'DER', '-noout', '-pubkey'], { input: csr });
    expect(createPublicKey(pem.toString()).equals(createPublicKey(key))).toBe(true);
  });
});

describe.skipIf(!OPENSSL)('a certificate', () => {
  const now = Date.now();
  const signed = (names: string[]): { chain: string; key: KeyObject; pem: string } => {
    const files = selfSigned(directory, 'a', names);
    const pem = readFileSync(files.key, 'utf8');
    return { chain: readFileSync(files.cert, 'utf8'), key: createPrivateKey(pem), pem };
  };

  it('is not stored if it cannot be used', () => {
    const file = join(directory, 'certificate.pem');
    writeFileSync(file, 'the old one');
    const { chain, key } = signed([`DNS:${NAME}`]);
    const other = signed(['DNS:other.otela.test', `DNS:${NAME}`]);
    const store =
      (pem: string, of: KeyObject, names = [NAME], at = now) =>
      () =>
        storeCertificate(file, pem, { key: of, names, now: at });
    expect(store('', key)).toThrow('no certificate');
    expect(store('-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----', key)).toThrow('no certificate');
    expect(store(chain.repeat(11), key)).toThrow('no certificate');
    expect(store(chain, newKey())).toThrow('of another key');
    expect(store(chain, key, [NAME, 'b.otela.test'])).toThrow('for other names');
    expect(store(chain, key, [NAME], now + 72 * HOUR_MS)).toThrow('that ended on');
    expect(readFileSync(file, 'utf8')).toBe('the old one');
    store(other.chain, other.key)();
    expect(readFileSync(file, 'utf8')).toContain('BEGIN CERTIFICATE');
  });

  it('has no key but its own', () => {
    const file = join(directory, 'certificate.pem');
    const { chain, key, pem } = signed([`DNS:${NAME}`]);
    const foreign = newKey().export({ type: 'pkcs8', format: 'pem' }).toString();
    storeCertificate(file, `${foreign}\n${chain}\nEVIL`, { key, names: [NAME], now });
    const stored = readFileSync(file, 'utf8');
    expect([stored.includes(foreign), stored.includes('EVIL'), stored.includes(pem.trim())]).toEqual([
      false,
      false,
      true,
    ]);
  });

  it('replaces a symbolic link and leaves its target', () => {
    const victim = join(directory, 'victim');
    writeFileSync(victim, 'unchanged');
    const { chain, key } = signed([`DNS:${NAME}`]);
    for (const [name, write] of [
      ['certificate.pem', (file: string) => storeCertificate(file, chain, { key, names: [NAME], now })],
      ['refusals.json', (file: string) => void new OrderRefusals(file).begin(0)],
    ] as const) {
      const file = join(directory, name);
      symlinkSync(victim, file);
      write(file);
      const { mode } = lstatSync(file);
      expect([name, lstatSync(file).isFile(), mode & 0o777]).toEqual([name, true, 0o600]);
    }
    expect(readFileSync(victim, 'utf8')).toBe('unchanged');
  });
});

it('a key of the account that other users can read is refused, also through a link', () => {
  const [target, link] = [join(directory, 'shared.key'), join(directory, 'account.key')];
  writeFileSync(target, newKey().export({ type: 'pkcs8', format: 'pem' }), { mode: 0o644 });
  symlinkSync(target, link);
  expect(() => readOrCreateKey(link)).toThrow('other users can read it');
});

describe('refused orders', () => {
  const refused = (retryAfterMs = 0) => new AcmeError('no', 'rateLimited', retryAfterMs);
  const open = () => new OrderRefusals(join(directory, 'refusals.json'));
  const refuse = (times: number, error: unknown, at = 0) => {
    for (let n = 0; n < times; n++) open().end(open().begin(at), error, at);
  };

  it('let a restarted gateway order three times at once, then after an hour', () => {
    refuse(3, refused());
    expect(open().startWaitMs(0)).toBe(0);
    refuse(1, refused());
    expect(open().startWaitMs(10)).toBe(HOUR_MS - 10);
    expect(open().startWaitMs(HOUR_MS)).toBe(0);
    refuse(1, refused(5 * HOUR_MS));
    expect(open().startWaitMs(0)).toBe(5 * HOUR_MS);
    open().clear();
    expect(open().startWaitMs(0)).toBe(0);
  });

  it('postpone a renewal over a restart', () => {
    expect(open().renewalWaitMs(0)).toBe(0);
    refuse(2, refused());
    expect(open().renewalWaitMs(0)).toBe(HOUR_MS);
    refuse(1, refused(5 * HOUR_MS));
    expect(open().renewalWaitMs(0)).toBe(5 * HOUR_MS);
  });

  it('include crashes, but not an authority that does not answer', () => {
    refuse(9, new AcmeError('does not answer'));
    expect(open().startWaitMs(0)).toBe(0);
    for (let n = 0; n < 4; n++) open().begin(0);
    expect(open().startWaitMs(0)).toBe(HOUR_MS);
  });

  it('do not block longer if the clock was set back, nor if their file is broken', () => {
    refuse(4, refused(), 1_000 * HOUR_MS);
    expect(open().startWaitMs(5)).toBe(HOUR_MS);
    writeFileSync(open().file, '{"count": "many"', { mode: 0o600 });
    expect(open().startWaitMs(5)).toBe(0);
  });
});

it('an authority with certificates at their end gets an order each hour at most', () => {
  const now = 1_000 * HOUR_MS;
  expect(ordersApartMs({ from: 0, until: now })).toBe(HOUR_MS);
  expect(ordersApartMs({ from: now, until: now + 20_000 })).toBeCloseTo(20_000 / 3);
  expect(ordersApartMs({ from: now, until: now })).toBe(1_000);
});

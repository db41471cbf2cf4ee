/** `otela-gateway serve --domain NAME`, with a real certificate authority. */
import { X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, describe, expect, it } from 'vitest';
import { dueInMs, retryMs } from '../../../gateway/hosts/node/acme/renewal-time.ts';
import { NO_PEBBLE, PEBBLE, type Pebble, startPebble } from '../../support/acme/pebble.ts';
import { OPENSSL } from '../../support/certificate.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const NAME = 'llm.otela.test';
const READY_MS = 60_000;
const HOUR_MS = 3_600_000;

afterAll(endAll);

function serve(
  pebble: Pebble,
  data: string,
  ports: { https: number; http?: number },
  env: Record<string, string> = {},
) {
  const { url, httpPort, caFile } = pebble;
  const flags = ['--domain', NAME, '--acme-directory', url, '--http-port', String(ports.http ?? httpPort)];
  const place = ['--data', data, '--host', '127.0.0.1', '--port', String(ports.https)];
  return new Managed([NODE, GATEWAY_MAIN, 'serve', ...flags, ...place], {
    env: { NODE_EXTRA_CA_CERTS: caFile, ...env },
  });
}

/** Does a handshake. Returns the serial number of the certificate, which `ca` must have signed for NAME. */
function serialAt(port: number, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', servername: NAME, ca }, () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

interface PlainAnswer {
  status: number | undefined;
  location: string | undefined;
  body: string;
}

function plain(port: number, path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<PlainAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port, path, method, headers }, (response) => {
      text(response).then(
        (body) => resolve({ status: response.statusCode, location: response.headers.location, body }),
        reject,
      );
    });
    sent.on('error', reject).end();
  });
}

describe.skipIf(PEBBLE === undefined || !OPENSSL)(
  `a gateway with a domain${PEBBLE === undefined ? ` (${NO_PEBBLE})` : ''}`,
  () => {
    it('obtains a certificate, keeps it over a restart, and sends browsers to HTTPS', async () => {
      const pebble = await startPebble();
      const data = join(await temporaryDirectory(), 'data');
      const https = await freePort();
      const first = serve(pebble, data, { https });
      await first.line(new RegExp(`otela-gateway ready https://${NAME}:${https}`), READY_MS);
      const ca = await pebble.root();
      const serial = await serialAt(https, ca);
      for (const file of ['acme/account.key', 'acme/certificate.pem'])
        expect([file, statSync(join(data, file)).mode & 0o777]).toEqual([file, 0o600]);
      const { httpPort } = pebble;
      const home = `https://${NAME}:${https}`;
      expect(await plain(httpPort, '/chat?a=b')).toMatchObject({ status: 308, location: `${home}/chat?a=b` });
      expect(await plain(httpPort, '/', { host: 'evil.example' })).toMatchObject({ status: 308, location: `${home}/` });
      for (const path of ['/.well-known/acme-challenge/', '/.well-known/acme-challenge/..%2F..%2Fadmin.key'])
        expect([path, await plain(httpPort, path)]).toEqual([path, { status: 404, location: undefined, body: '' }]);
      for (const headers of [{ authorization: 'Bearer sk' }, { 'x-api-key': 'sk' }, { cookie: 'a=b' }]) {
        const { status, location, body } = await plain(httpPort, '/v1/models', headers);
        expect([status, location, JSON.parse(body).error.code]).toEqual([403, undefined, 'permission_denied']);
      }
      expect((await plain(httpPort, '/v1/chat/completions', {}, 'POST')).status).toBe(403);
      expect((await plain(httpPort, '/', { 'x-long': 'x'.repeat(10_000) })).status).toBe(431);
      await first.stop();
      const again = serve(pebble, data, { https });
      await again.line(/otela-gateway ready/, READY_MS);
      expect(await serialAt(https, ca)).toBe(serial);
      await again.stop();
    });

    it('replaces the certificate while it serves', async () => {
      const pebble = await startPebble({ validityS: 20 });
      const data = join(await temporaryDirectory(), 'data');
      const https = await freePort();
      const gateway = serve(pebble, data, { https });
      await gateway.line(/otela-gateway ready/, READY_MS);
      const ca = await pebble.root();
      // The file, because a handshake on a slow machine may find this certificate at its end.
      const before = new X509Certificate(readFileSync(join(data, 'acme/certificate.pem'))).serialNumber;
      const after = await eventually('another certificate', 60_000, async () => {
        const serial = await serialAt(https, ca).catch(() => before);
        return serial === before ? undefined : serial;
      });
      expect(after).not.toBe(before);
      await gateway.stop();
    });

    it('uses the account that the authority gave', async () => {
      const account = { kid: 'kid-1', hmacKey: 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W' };
      const pebble = await startPebble({ account });
      const data = join(await temporaryDirectory(), 'data');
      const https = await freePort();
      const refused = serve(pebble, data, { https });
      expect((await refused.exited).code).toBe(1);
      expect(refused.output).toContain('set ACME_EAB_KID and ACME_EAB_HMAC_KEY');
      const { kid, hmacKey } = account;
      const gateway = serve(pebble, data, { https }, { ACME_EAB_KID: kid, ACME_EAB_HMAC_KEY: hmacKey });
      await gateway.line(/otela-gateway ready/, READY_MS);
      expect(gateway.output).not.toContain(hmacKey);
      expect(readFileSync(join(data, 'acme/certificate.pem'), 'utf8')).toContain('BEGIN CERTIFICATE');
      await gateway.stop();
    });

    it('does not start if the authority cannot reach it, and asks four times at most', async () => {
      const pebble = await startPebble();
      const data = join(await temporaryDirectory(), 'data');
      const ports = { https: await freePort(), http: await freePort() };
      for (const message of [...Array<string>(4).fill(`refused ${NAME}: `), 'the last orders were refused']) {
        const gateway = serve(pebble, data, ports);
        expect((await gateway.exited).code).toBe(1);
        expect(gateway.output).toContain(`no certificate for ${NAME}: the`);
        expect(gateway.output).toContain(message);
      }
    });
  },
);

it.each([
  [['--domain', 'localhost'], '--domain localhost is not a name such as gw.example.org'],
  [['--domain', '192.0.2.1'], '--domain 192.0.2.1 is not a name'],
  [['--domain', NAME, '--tls-cert', 'a', '--tls-key', 'b'], '--domain obtains a certificate'],
  [
    ['--domain', NAME, '--acme-directory', 'http://ca.example'],
    '--acme-directory http://ca.example is not an https URL',
  ],
  [['--domain', NAME, '--url', `http://${NAME}`], '--domain needs an https --url'],
  [['--domain', NAME, '--http-port', '99999'], '--http-port 99999 is not a port number'],
  [['--domain', NAME, '--acme-email', 'a@b?c'], '--acme-email a@b?c is not an address'],
  [['--domain', NAME, '--cluster-address', '127.0.0.1:1'], '--domain is for one machine'],
])('refuses %j', async (flags, message) => {
  const gateway = new Managed([NODE, GATEWAY_MAIN, 'serve', ...flags]);
  expect((await gateway.exited).code).toBe(2);
  expect(gateway.output).toContain(message);
});

it('a certificate is replaced when a third of its time is left, and after failures ever more rarely', () => {
  const validity = { from: 0, until: 90 * 24 * HOUR_MS };
  expect(dueInMs(undefined, 5)).toBe(0);
  expect(dueInMs(validity, 0)).toBe(60 * 24 * HOUR_MS);
  expect(dueInMs(validity, 70 * 24 * HOUR_MS)).toBe(0);
  expect([1, 2, 3, 99].map((failures) => retryMs(failures) / HOUR_MS)).toEqual([0.5, 1, 2, 12]);
});

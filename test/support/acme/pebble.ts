/** pebble (https://github.com/letsencrypt/pebble), the ACME server of Let's Encrypt's tests; `.ci/run` builds it. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { which } from '../abilities.ts';
import { selfSigned } from '../certificate.ts';
import { freePort, Managed, temporaryDirectory } from '../processes.ts';
import { ROOT } from '../where.ts';
import { startNameServer } from './name-server.ts';

const BUILT = join(ROOT, '.ci/bin/pebble');
export const PEBBLE = process.env.OTELA_TEST_PEBBLE ?? (existsSync(BUILT) ? BUILT : which('pebble'));
export const NO_PEBBLE = 'no pebble: set OTELA_TEST_PEBBLE, or let .ci/run build it with Go';
const STARTED_MS = 60_000;

interface PebbleOptions {
  /** Validity of its certificates in seconds. */
  validityS?: number;
  /** The account that it requires. */
  account?: { kid: string; hmacKey: string };
}

export interface Pebble {
  /** URL of its directory. */
  url: string;
  /** Port on which it looks for the answers to its challenges. */
  httpPort: number;
  /** PEM file with the authority of its https port, for NODE_EXTRA_CA_CERTS. */
  caFile: string;
  /** Returns the certificate that its certificates end at. */
  root(): Promise<string>;
}

export async function startPebble({ validityS, account }: PebbleOptions = {}): Promise<Pebble> {
  if (PEBBLE === undefined) throw new Error(NO_PEBBLE);
  const directory = await temporaryDirectory('otela-pebble');
  const { cert, key } = selfSigned(directory, 'pebble', ['IP:127.0.0.1']);
  const [port, management, httpPort, tlsPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const pebble = {
    listenAddress: `127.0.0.1:${port}`,
    managementListenAddress: `127.0.0.1:${management}`,
    certificate: cert,
    privateKey: key,
    httpPort,
    tlsPort,
    retryAfter: { authz: 1, order: 1 },
    externalAccountBindingRequired: account !== undefined,
    ...(account !== undefined && { externalAccountMACKeys: { [account.kid]: account.hmacKey } }),
    profiles: { default: { description: 'of tests', validityPeriod: validityS ?? 90 * 86_400 } },
  };
  const config = join(directory, 'pebble.json');
  writeFileSync(config, JSON.stringify({ pebble }));
  const dns = `127.0.0.1:${await startNameServer()}`;
  // Without its random sleeps. It still refuses one nonce in twenty, so that clients must try again.
  const running = new Managed([PEBBLE, '-config', config, '-dnsserver', dns], { env: { PEBBLE_VA_NOSLEEP: '1' } });
  await running.line(/Listening on: /, STARTED_MS);
  const root = () =>
    new Promise<string>((resolve, reject) => {
      const agent = new Agent({ ca: readFileSync(cert) });
      const url = `https://127.0.0.1:${management}/roots/0`;
      get(url, { agent }, (response) => text(response).then(resolve, reject)).on('error', reject);
    });
  return { url: `https://127.0.0.1:${port}/dir`, httpPort, caFile: cert, root };
}

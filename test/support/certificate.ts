/** Certificates of a test's own, by openssl. */
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { atEnd } from './processes.ts';

/** Whether there is an openssl here to make certificates. */
export const OPENSSL = spawnSync('openssl', ['version']).status === 0;
export const NO_OPENSSL = 'no openssl here to make certificates';

/** A certificate that signs itself, in `directory`: paths of two PEM files. `names`: as openssl has them, e.g. `IP:127.0.0.1`. */
export function selfSigned(
  directory: string,
  commonName: string,
  names: string[] = [],
  days = 2,
): { cert: string; key: string } {
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const made = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:P-256',
    '-nodes',
    '-days',
    String(days),
  ];
  const more = names.length === 0 ? [] : ['-addext', `subjectAltName=${names.join(',')}`];
  execFileSync('openssl', [...made, '-subj', `/CN=${commonName}`, ...more, '-keyout', key, '-out', cert], {
    stdio: 'ignore',
  });
  return { cert, key };
}

/** `fetch` of this process trusts it too, until the test ends. */
export function trust(pem: string): void {
  const before = getCACertificates();
  setDefaultCACertificates([...before, pem]);
  atEnd(() => setDefaultCACertificates(before));
}

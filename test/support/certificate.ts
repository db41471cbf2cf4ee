/** Certificates for tests, made by openssl. */
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { atEnd } from './processes.ts';

/** True if openssl is installed. */
export const OPENSSL = spawnSync('openssl', ['version']).status === 0;
export const NO_OPENSSL = 'no openssl here to make certificates';

/**
 * Creates a self-signed certificate in `directory` and returns the paths of two PEM files. `names`: in openssl's form,
 * e.g. `IP:127.0.0.1`.
 */
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

/** Makes `fetch` of this process trust it too, until the test ends. */
export function trust(pem: string): void {
  const before = getCACertificates();
  setDefaultCACertificates([...before, pem]);
  atEnd(() => setDefaultCACertificates(before));
}

/** The files of the gateway's certificate: DATA/acme/ with the account's key, and the certificate with its key. */
import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readPrivateFile, writePrivateFile } from '../../../../node/private-file.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { AcmeError } from './acme-error.ts';
import type { Validity } from './renewal-time.ts';

/** A chain has two or three certificates. */
const CHAIN_MAX = 10;
/** Text between certificates is dropped: a chain must contain nothing else, above all no key (RFC 8555 §9.1). */
const CERTIFICATE = /-----BEGIN CERTIFICATE-----\r?\n[\w+/=\r\n]+-----END CERTIFICATE-----/g;

export interface CertificateFiles {
  accountKey: string;
  /** The certificate's chain and its private key. They are one file, so that a crash cannot leave two that differ. */
  certificate: string;
  /** Orders that the authority refused. */
  refusals: string;
}

/** Creates the directory and returns the paths in it. */
export async function openCertificateFiles(data: string): Promise<CertificateFiles> {
  const directory = join(data, 'acme');
  await makeDirectory(directory);
  return {
    accountKey: join(directory, 'account.key'),
    certificate: join(directory, 'certificate.pem'),
    refusals: join(directory, 'refusals.json'),
  };
}

export function newKey(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
}

/** Returns the key in the file. The first call creates it. */
export function readOrCreateKey(file: string): KeyObject {
  if (existsSync(file)) return createPrivateKey(readPrivateFile(file));
  const key = newKey();
  writePrivateFile(file, pemOf(key));
  return key;
}

/**
 * Stores a chain that an authority sent, with its key.
 * @throws AcmeError if the certificate is not for this key and these names, or has ended; the file is unchanged then
 */
export function storeCertificate(
  file: string,
  chain: string,
  { key, names, now }: { key: KeyObject; names: readonly string[]; now: number },
): void {
  const certificates = chain.match(CERTIFICATE) ?? [];
  const leaf = certificates.length > CHAIN_MAX ? undefined : parsed(certificates[0]);
  if (leaf === undefined) throw unusable('no certificate');
  if (!leaf.checkPrivateKey(key)) throw unusable('a certificate of another key');
  if (!hasNames(leaf, names)) throw unusable('a certificate for other names');
  if (Date.parse(leaf.validTo) <= now) throw unusable(`a certificate that ended on ${leaf.validTo}`);
  writePrivateFile(file, `${certificates.join('\n')}\n${pemOf(key)}`);
}

function unusable(what: string): AcmeError {
  return new AcmeError(`the certificate authority sent ${what}`, 'unusable');
}

/** Returns the validity of the stored certificate. Undefined: there is none, or it does not have these names. */
export function storedValidity(
  { certificate: file }: CertificateFiles,
  names: readonly string[],
): Validity | undefined {
  if (!existsSync(file)) return undefined;
  const certificate = parsed(readFileSync(file, 'utf8'));
  if (certificate === undefined || !hasNames(certificate, names)) return undefined;
  return { from: Date.parse(certificate.validFrom), until: Date.parse(certificate.validTo) };
}

function hasNames(certificate: X509Certificate, names: readonly string[]): boolean {
  return names.every((name) => certificate.checkHost(name) !== undefined);
}

/** Returns the first certificate of the text. Undefined: the text has no certificate. */
function parsed(pem: string | undefined): X509Certificate | undefined {
  try {
    return pem === undefined ? undefined : new X509Certificate(pem);
  } catch {
    return undefined;
  }
}

function pemOf(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

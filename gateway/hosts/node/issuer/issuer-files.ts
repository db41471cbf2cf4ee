/**
 * The issuer's keys as files:
 *
 *     root.key       signs certificates and revocations. Back it up; the gateway serves without it
 *     gateway.key    signs tickets, evictions and watermarks
 *     gateway.cert   certificate of gateway.key, signed by root.key
 *     retired        former keys with their certificates; they sign evictions and watermarks of their sessions
 *     revoked        revocations, published at each start
 *
 * All 0600 and base64url. Every change is one rename, in an order that the next start can repair after a crash.
 */
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { fromBase32 } from '../../../../shared/lattice/base32.ts';
import { fromBase64url, toBase64url } from '../../../../shared/lattice/base64url.ts';
import { KEY_BYTES } from '../../../../shared/lattice/crypto-interface.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  decodeCertificate,
  keyName,
} from '../../../../shared/lattice/gateway-certificate.ts';
import {
  decodeRevocation,
  REVOCATION_BYTES,
  signRevocation,
} from '../../../../shared/lattice/gateway-key-statements.ts';
import { TICKET_LIFE_MAX_S } from '../../../../shared/lattice/ticket.ts';
import { newSeed, workerdSigner } from '../../../issuer/ed25519.ts';
import { certifyKey, type GatewayKey, IssuerError, issuerOf, renewIfNeeded } from '../../../issuer/issuer.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { readIfExists } from '../data/read-if-exists.ts';

/** Names of the issuer's files. Other files in the directory do not belong to the gateway. */
export const ISSUER_FILES: ReadonlySet<string> = new Set([
  'root.key',
  'gateway.key',
  'gateway.cert',
  'retired',
  'revoked',
]);

export interface IssuerFiles {
  dir: string;
  /** The root key; undefined: it is stored elsewhere. */
  root: string | undefined;
  gateway: GatewayKey;
  certificate: Certificate;
  retired: GatewayKey[];
  /** The stored revocations, in base64url. */
  revoked: string[];
}

/** Reads the issuer in `dir`, creates missing files and renews what expires. @throws IssuerError */
export async function openIssuer(dir: string, nowS: number): Promise<IssuerFiles> {
  await makeDirectory(dir);
  const own = await readIssuerFile(dir, 'gateway.key');
  const root = await readIssuerFile(dir, 'root.key');
  if (root === undefined && own === undefined) {
    // A new institution is created only in an empty directory: a lost root key must not be replaced silently.
    await writeIssuerFile(dir, 'root.key', toBase64url(newSeed()));
    return openIssuer(dir, nowS);
  }
  const revoked = await lines(dir, 'revoked');
  const gone = new Set(revoked.map(revokedName));
  // A revoked key is replaced, because its signatures are invalid. This also completes an interrupted revocation.
  const usable = own !== undefined && !gone.has(nameOf(own));
  const key = usable ? own : toBase64url(newSeed());
  if (!usable) await writeIssuerFile(dir, 'gateway.key', key);
  const stored = await readIssuerFile(dir, 'gateway.cert');
  const certificate = await current(dir, { root, key, stored }, nowS);
  const files = {
    dir,
    root,
    gateway: { key, certificate: toBase64url(certificate.bytes) },
    certificate,
    retired: (await retired(dir)).filter((former) => former.key !== key && !gone.has(decode(former).keyName)),
    revoked,
  };
  issuerOf(workerSecrets(files));
  return files;
}

/** Returns the secrets of the Worker, which never include the root key. */
export function workerSecrets(files: IssuerFiles) {
  return {
    OTELA_GATEWAY_KEY: files.gateway.key,
    OTELA_GATEWAY_CERT: files.gateway.certificate,
    OTELA_RETIRED_KEYS: files.retired.map(({ key, certificate }) => `${key}:${certificate}`).join(','),
    OTELA_REVOCATIONS: files.revoked.join(','),
  };
}

/** Writes files with the secrets that `workerSecrets` returned. */
export async function writeWorkerSecrets(dir: string, secrets: Readonly<Record<string, string>>): Promise<void> {
  await makeDirectory(dir);
  const { OTELA_GATEWAY_KEY = '', OTELA_GATEWAY_CERT = '', OTELA_RETIRED_KEYS = '', OTELA_REVOCATIONS = '' } = secrets;
  await writeIssuerFile(dir, 'gateway.cert', OTELA_GATEWAY_CERT);
  await writeIssuerFile(dir, 'gateway.key', OTELA_GATEWAY_KEY);
  await writeIssuerFile(dir, 'retired', OTELA_RETIRED_KEYS.replaceAll(',', '\n'));
  await writeIssuerFile(dir, 'revoked', OTELA_REVOCATIONS.replaceAll(',', '\n'));
}

/** Returns the names of keys as revocations and `issuer show` use them. */
export function keyNames(files: IssuerFiles): { retired: string[]; revoked: string[] } {
  return { retired: files.retired.map((key) => decode(key).keyName), revoked: files.revoked.map(revokedName) };
}

/**
 * Creates a new gateway key. The former key is kept until its last ticket has ended, to sign watermarks; its sessions
 * continue.
 */
export async function rotate(files: IssuerFiles, nowS: number): Promise<IssuerFiles> {
  requireRoot(files);
  const useful = files.retired.filter((former) => decode(former).notAfter + TICKET_LIFE_MAX_S > nowS);
  await writeRetired(files.dir, [...useful, files.gateway]);
  await writeIssuerFile(files.dir, 'gateway.key', toBase64url(newSeed()));
  return openIssuer(files.dir, nowS);
}

/**
 * Revokes a key, and with it every session that the key admitted. If it is the current key, `openIssuer` replaces it.
 * If `name` is the root's, the whole issuer is revoked.
 * @throws IssuerError if `name` is not the name of a key
 */
export async function revoke(files: IssuerFiles, name: string, nowS: number): Promise<IssuerFiles> {
  const signer = workerdSigner(seed(requireRoot(files)));
  if (files.revoked.some((text) => revokedName(text) === name)) return files;
  const revocation = toBase64url(signRevocation(fromName(name), signer));
  await writeIssuerFile(files.dir, 'revoked', [...files.revoked, revocation].join('\n'));
  const rest = files.retired.filter((former) => decode(former).keyName !== name);
  if (rest.length < files.retired.length) await writeRetired(files.dir, rest);
  return openIssuer(files.dir, nowS);
}

interface StoredKeys {
  root: string | undefined;
  key: string;
  stored: string | undefined;
}

/**
 * Returns the current certificate: the stored one if it belongs to this key and has not expired, otherwise a new one if
 * the root key is available.
 */
async function current(dir: string, { root, key, stored }: StoredKeys, nowS: number): Promise<Certificate> {
  const known = stored === undefined ? undefined : decode({ key, certificate: stored });
  const fits = known?.keyName === nameOf(key);
  if (root === undefined) {
    if (known !== undefined && fits && known.notAfter > nowS) return known;
    throw new IssuerError(`${dir} has no valid certificate for its gateway key; put root.key there to create one.`);
  }
  const usable = stored !== undefined && fits;
  const inForce = usable ? renewIfNeeded(root, { key, certificate: stored }, nowS) : certifyKey(root, key, nowS);
  // If the disk is full, the certificate is not stored, and the next start creates another one.
  if (inForce.certificate !== stored) await writeIssuerFile(dir, 'gateway.cert', inForce.certificate).catch(unlessFull);
  return decode(inForce);
}

function unlessFull(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
}

function decode({ certificate }: GatewayKey): Certificate {
  const bytes = fromBase64url(certificate, CERTIFICATE_BYTES);
  try {
    return decodeCertificate(bytes ?? new Uint8Array());
  } catch (cause) {
    throw new IssuerError(
      'The certificate in gateway.cert, or one in retired, is damaged: restore the file from a backup.',
      { cause },
    );
  }
}

function requireRoot({ root, dir }: IssuerFiles): string {
  if (root !== undefined) return root;
  throw new IssuerError(`This requires the root key: put root.key into ${dir}, and remove it afterwards.`);
}

function seed(text: string): Uint8Array {
  const bytes = fromBase64url(text, KEY_BYTES);
  if (bytes?.length !== KEY_BYTES)
    throw new IssuerError('Each key in root.key, gateway.key and retired must be 32 bytes in base64url.');
  return bytes;
}

function nameOf(key: string): string {
  return keyName(workerdSigner(seed(key)).publicKey);
}

function revokedName(text: string): string {
  const bytes = fromBase64url(text, REVOCATION_BYTES);
  try {
    return decodeRevocation(bytes ?? new Uint8Array()).keyName;
  } catch (cause) {
    throw new IssuerError('A revocation in the file revoked is damaged: restore the file from a backup.', { cause });
  }
}

function fromName(name: string): Uint8Array {
  const bytes = /^[a-z2-7]{52}$/.test(name) ? fromBase32(name)?.subarray(0, KEY_BYTES) : undefined;
  if (bytes === undefined || keyName(bytes) !== name)
    throw new IssuerError(`"${name.slice(0, 64)}" is not the name of a key.`);
  return bytes;
}

async function retired(dir: string): Promise<GatewayKey[]> {
  return (await lines(dir, 'retired')).map((line) => {
    const [key = '', certificate = ''] = line.split(':');
    return { key, certificate };
  });
}

function writeRetired(dir: string, keys: GatewayKey[]): Promise<void> {
  return writeIssuerFile(dir, 'retired', keys.map(({ key, certificate }) => `${key}:${certificate}`).join('\n'));
}

async function lines(dir: string, name: string): Promise<string[]> {
  return ((await readIssuerFile(dir, name)) ?? '').split('\n').filter((line) => line !== '');
}

/** Reads a file; undefined if it does not exist. Removes other users' access to it. */
async function readIssuerFile(dir: string, name: string): Promise<string | undefined> {
  const file = join(dir, name);
  const text = await readIfExists(file);
  if (text !== undefined) await chmod(file, 0o600);
  return text;
}

async function writeIssuerFile(dir: string, name: string, text: string): Promise<void> {
  writePrivateFile(join(dir, name), `${text}\n`);
}

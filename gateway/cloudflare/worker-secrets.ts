/**
 * The secrets of a gateway on Cloudflare, as files of its operator (0600), because Cloudflare never shows a secret
 * again:
 *   admin.key     the first operator's key; Cloudflare gets its SHA-256
 *   issuer/       the keys that admit nodes: see hosts/node/issuer/issuer-files.ts. root.key never leaves this machine
 *   sent.json     SHA-256 of each sent secret, by name, so that it is not sent again
 * Each is on disk before it is sent: after an interruption the next run continues with the same keys.
 */
import { chmod, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../node/private-file.ts';
import { KEY_PREFIX, newSecret, sha256Hex } from '../accounts/secrets.ts';
import { readIfExists } from '../hosts/node/data/read-if-exists.ts';
import { openIssuer, workerSecrets } from '../hosts/node/issuer/issuer-files.ts';

const ADMIN_SECRET = 'ADMIN_KEY_SHA256';
const ISSUER_SECRET = 'OTELA_GATEWAY_KEY';
const sentSchema = z.record(z.string(), z.string());

interface WantedSecrets {
  /** Secrets to send, by name. */
  secrets: Record<string, string>;
  /** The operator's key, which must be shown once. Absent unless this run created it. */
  adminKey?: string;
  notes: string[];
}

/**
 * Returns the secrets that Cloudflare lacks, from files, or newly created.
 * @param listed names of the secrets that the Worker has
 */
export async function wantedSecrets(
  dir: string,
  listed: readonly string[],
  { newAdminKey, nowS }: { newAdminKey: boolean; nowS: number },
): Promise<WantedSecrets> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await chmod(dir, 0o700);
  const wanted: WantedSecrets = { secrets: {}, notes: [] };
  const sent = await readSent(dir);
  const want = (name: string, value: string) => {
    if (listed.includes(name) ? sent[name] !== sha256Hex(value) : value !== '') wanted.secrets[name] = value;
  };
  const file = join(dir, 'admin.key');
  const known = newAdminKey ? undefined : await readIfExists(file);
  if (known !== undefined) want(ADMIN_SECRET, sha256Hex(known));
  else if (listed.includes(ADMIN_SECRET) && !newAdminKey)
    wanted.notes.push(`the Worker has an admin key, but ${dir} does not; --new-admin-key creates another one`);
  else {
    const key = newSecret(KEY_PREFIX).plaintext;
    writePrivateFile(file, `${key}\n`);
    wanted.adminKey = key;
    want(ADMIN_SECRET, sha256Hex(key));
  }
  const issuer = join(dir, 'issuer');
  if (listed.includes(ISSUER_SECRET) && (await readIfExists(join(issuer, 'gateway.key'))) === undefined)
    wanted.notes.push(`the Worker has the issuer's keys, but ${dir} does not: they stay as they are`);
  else {
    // Also renews the gateway's certificate if the root key is on this machine.
    for (const [name, value] of Object.entries(workerSecrets(await openIssuer(issuer, nowS)))) want(name, value);
  }
  return wanted;
}

/** Records which secrets Cloudflare has accepted. */
export async function recordSentSecrets(dir: string, secrets: Readonly<Record<string, string>>): Promise<void> {
  const hashes = Object.fromEntries(Object.entries(secrets).map(([name, value]) => [name, sha256Hex(value)]));
  writePrivateFile(join(dir, 'sent.json'), `${JSON.stringify({ ...(await readSent(dir)), ...hashes }, null, 1)}\n`);
}

/**
 * Writes a file that only this user can read, calls `use` with its path, and deletes it. Secrets must not be
 * command-line arguments, which other users can see.
 */
export async function withSecretsFile<T>(
  dir: string,
  secrets: Readonly<Record<string, string>>,
  use: (file: string) => Promise<T>,
): Promise<T> {
  const file = join(dir, 'sending.json');
  try {
    writePrivateFile(file, `${JSON.stringify(secrets)}\n`);
    return await use(file);
  } finally {
    await rm(file, { force: true });
  }
}

async function readSent(dir: string): Promise<Record<string, string>> {
  const text = await readIfExists(join(dir, 'sent.json'));
  return text === undefined ? {} : sentSchema.parse(JSON.parse(text));
}

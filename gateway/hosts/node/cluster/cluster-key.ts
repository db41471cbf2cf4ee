/**
 * The key that all processes of one installation share (`--cluster-key`). Processes prove it to each other, and it
 * encrypts the secrets in PostgreSQL.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { readPrivateFile } from '../../../../node/private-file.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';

/** A key with fewer characters could be guessed: a recorded handshake lets an attacker try keys offline. */
const KEY = /^[\x21-\x7e]{32,512}$/;
const KEY_BYTES = 32;
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export interface ClusterKey {
  /** The pre-shared key of links between processes. */
  readonly link: Buffer;
  /** The key of the secrets in PostgreSQL. */
  readonly secrets: Buffer;
}

/** @throws CommandError without the file's content */
export function readClusterKey(file: string): ClusterKey {
  let text: string;
  try {
    text = readPrivateFile(file).trim();
  } catch (cause) {
    throw new CommandError(`--cluster-key ${file} cannot be read: ${errorText(cause)}`, { cause });
  }
  if (!KEY.test(text))
    throw new CommandError(
      `--cluster-key ${file} must contain one key of 32 to 512 characters. Create one: openssl rand -hex 32 > ${file}`,
    );
  return clusterKey(text);
}

export function clusterKey(text: string): ClusterKey {
  const derive = (use: string) => Buffer.from(hkdfSync('sha256', text, '', `otela cluster ${use}`, KEY_BYTES));
  return { link: derive('link'), secrets: derive('secrets') };
}

/** Encrypts a text. A text that was encrypted with another `name` cannot be decrypted in its place. */
export function encryptSecret({ secrets }: ClusterKey, name: string, text: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, secrets, nonce).setAAD(Buffer.from(name));
  const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, sealed, cipher.getAuthTag()]).toString('base64url');
}

/** @throws CommandError if the text was encrypted with another key */
export function decryptSecret({ secrets }: ClusterKey, name: string, text: string): string {
  const bytes = Buffer.from(text, 'base64url');
  try {
    const decipher = createDecipheriv(CIPHER, secrets, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(name)).setAuthTag(bytes.subarray(-TAG_BYTES));
    const sealed = bytes.subarray(NONCE_BYTES, -TAG_BYTES);
    return Buffer.concat([decipher.update(sealed), decipher.final()]).toString('utf8');
  } catch (cause) {
    throw new CommandError('The secrets in the database were stored with another --cluster-key.', { cause });
  }
}

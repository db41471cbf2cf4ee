/** API keys, join tokens and factory tokens: their format, how they are made, and how they are stored. */
import { createHash, randomBytes } from 'node:crypto';

/** Random bytes of a secret. 256 random bits cannot be guessed, so a plain SHA-256 of the secret is safe to store. */
const SECRET_BYTES = 32;
const SECRET_CHARS = 43;
/** Characters of the random part that lists show: 36 of 256 bits. The owner recognizes the secret by them. */
const RECOGNISABLE_CHARS = 6;

export const KEY_PREFIX = 'sk-otela-';
export const TOKEN_PREFIX = 'otela-join-';
export const FACTORY_PREFIX = 'otf_';
type Kind = typeof KEY_PREFIX | typeof TOKEN_PREFIX | typeof FACTORY_PREFIX;

interface Secret {
  /** The secret itself. Shown once, never stored. */
  plaintext: string;
  hash: string;
  /** The first characters of the plaintext, by which its owner recognizes it. */
  prefix: string;
}

export function newSecret(kind: Kind): Secret {
  const plaintext = kind + randomBytes(SECRET_BYTES).toString('base64url');
  return { plaintext, hash: sha256Hex(plaintext), prefix: plaintext.slice(0, kind.length + RECOGNISABLE_CHARS) };
}

export function newInstallationSecret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url');
}

/** Creates an id that needs no escaping in a URL or on a command line. */
export function newId(kind: 'key' | 'jt' | 'ft' | 'user' | 'proj' | 'req' | 'right'): string {
  return `${kind}_${randomBytes(12).toString('hex')}`;
}

/** Computes a PKCE challenge (RFC 7636 §4.2). */
export function sha256Base64url(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

export function sha256Hex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** True if a text has the format of a secret of this kind. Other texts are refused without a query to D1. */
export function isSecret(text: string, kind: Kind): boolean {
  return text.length === kind.length + SECRET_CHARS && text.startsWith(kind) && /^[\w-]+$/.test(text);
}

/** API keys, join tokens and factory tokens: how they look, how they are made, how they are kept. */
import { createHash, randomBytes } from 'node:crypto';

/** 256 bits: cannot be guessed, so a plain SHA-256 is a safe thing to store. */
const SECRET_BYTES = 32;
const SECRET_CHARS = 43;
/** Characters of the random part that stay readable in lists: 36 of 256 bits. */
const RECOGNISABLE_CHARS = 6;

export const KEY_PREFIX = 'sk-otela-';
export const TOKEN_PREFIX = 'otela-join-';
export const FACTORY_PREFIX = 'otf_';
type Kind = typeof KEY_PREFIX | typeof TOKEN_PREFIX | typeof FACTORY_PREFIX;

interface Secret {
  /** Shown once, never stored. */
  plaintext: string;
  hash: string;
  /** Start of the plaintext, to recognise it by. */
  prefix: string;
}

export function newSecret(kind: Kind): Secret {
  const plaintext = kind + randomBytes(SECRET_BYTES).toString('base64url');
  return { plaintext, hash: sha256Hex(plaintext), prefix: plaintext.slice(0, kind.length + RECOGNISABLE_CHARS) };
}

export function newInstallationSecret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url');
}

/** An id that can stand in a URL and on a command line as it is. */
export function newId(kind: 'key' | 'jt' | 'ft' | 'user' | 'proj' | 'req'): string {
  return `${kind}_${randomBytes(12).toString('hex')}`;
}

/** A PKCE challenge (RFC 7636 §4.2). */
export function sha256Base64url(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

export function sha256Hex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Whether a text has the form of a secret of ours: what has not is refused without asking any store. */
export function isSecret(text: string, kind: Kind): boolean {
  return text.length === kind.length + SECRET_CHARS && text.startsWith(kind) && /^[\w-]+$/.test(text);
}

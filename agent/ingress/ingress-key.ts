import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { writePrivateFile } from '../../node/private-file.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';

export const INGRESS_KEY_FILE = 'ingress.key';

/** Maximum length of a key. A longer header is refused without hashing it. */
const KEY_MAX_CHARS = 256;

/**
 * The only key of this ingress. It is created at each start. Memory holds its hash, and only the file holds its text.
 */
export class IngressKey {
  readonly #hash: Buffer;

  private constructor(key: string) {
    this.#hash = sha256(key);
  }

  /** Uses a key that the operator chose. */
  static of(key: string): IngressKey {
    return new IngressKey(key);
  }

  /** Creates a key and writes it to `DIRECTORY/ingress.key`, or to another file in DIRECTORY, with mode 0600. */
  static make(directory: string, file = INGRESS_KEY_FILE): IngressKey {
    const key = `sk-otela-${randomBytes(32).toString('base64url')}`;
    writePrivateFile(join(directory, file), `${key}\n`);
    return new IngressKey(key);
  }

  /** @throws ApiError 401 if the request does not have this key */
  require(headers: IncomingHttpHeaders): void {
    const given = presentedKey(headers);
    if (given === undefined) throw unauthorized('No API key was given. Send it as "Authorization: Bearer …".');
    // Compares hashes of equal length, so that the time of the comparison reveals nothing.
    if (given.length > KEY_MAX_CHARS || !timingSafeEqual(sha256(given), this.#hash)) {
      throw unauthorized('This API key is not the key of this ingress.');
    }
  }
}

/** The key from `Authorization: Bearer …`, or from `x-api-key`, which Anthropic's SDK sends. */
function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization, 'x-api-key': other } = headers;
  if (authorization === undefined) return typeof other === 'string' ? other.trim() || undefined : undefined;
  return /^bearer +(\S+)$/i.exec(authorization.trim())?.[1];
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function unauthorized(message: string): ApiError {
  return new ApiError('invalid_api_key', message, { headers: { 'www-authenticate': 'Bearer realm="opentela"' } });
}

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { ApiError } from '../../shared/openai/errors.ts';

export const INGRESS_KEY_FILE = 'ingress.key';

/** Longer headers are no keys; they are not worth a hash. */
const KEY_MAX_CHARS = 256;

/** The one key of this ingress, new with each start: in memory as a hash, in clear only in the file. */
export class IngressKey {
  readonly #hash: Buffer;

  private constructor(key: string) {
    this.#hash = sha256(key);
  }

  /** A key that the operator chose and keeps. */
  static of(key: string): IngressKey {
    return new IngressKey(key);
  }

  /** Writes `DIRECTORY/ingress.key`, or another file there, 0600. */
  static make(directory: string, file = INGRESS_KEY_FILE): IngressKey {
    const key = `sk-otela-${randomBytes(32).toString('base64url')}`;
    writeFileSync(join(directory, file), `${key}\n`, { mode: 0o600 });
    return new IngressKey(key);
  }

  /** @throws ApiError 401 */
  require(headers: IncomingHttpHeaders): void {
    const given = presentedKey(headers);
    if (given === undefined) throw unauthorized('No API key was given. Send it as "Authorization: Bearer …".');
    // Of equal length whatever was sent: the time of the comparison tells nothing.
    if (given.length > KEY_MAX_CHARS || !timingSafeEqual(sha256(given), this.#hash)) {
      throw unauthorized('This API key is not known here.');
    }
  }
}

/** The secret of `Authorization: Bearer …`, or of `x-api-key`, which Anthropic's SDK sends. */
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

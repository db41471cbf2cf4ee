import type { IncomingHttpHeaders } from 'node:http';
import { ApiError } from '../../shared/openai/errors.ts';
import { readProviderList, type Trust, trustsNobody } from '../../shared/routing/trust.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
const TRUST_METADATA = 'otela_trusted_providers';

/** A client that restricts where its request may go relies on it: what cannot be obeyed is refused, never overlooked. */
export function refuseUnknownRestrictions(headers: IncomingHttpHeaders): void {
  if (headers['x-otela-require'] === undefined) return;
  const message = 'An ingress cannot restrict a request by x-otela-require; leave it out or ask a gateway.';
  throw new ApiError('invalid_requirement', message, { param: 'x-otela-require' });
}

/** The provider lists that a request brings; given both, both hold. @throws ApiError 400 */
export function requestedTrust(
  headers: IncomingHttpHeaders,
  metadata: Readonly<Record<string, string>>,
): readonly (readonly string[])[] {
  if (metadata.otela_require !== undefined) {
    const message = 'An ingress cannot restrict a request by metadata.otela_require.';
    throw new ApiError('invalid_requirement', message, { param: 'metadata.otela_require' });
  }
  const lists: string[][] = [];
  const header = headers[TRUST_HEADER];
  if (header !== undefined) lists.push(read(String(header), TRUST_HEADER));
  const member = metadata[TRUST_METADATA];
  if (member !== undefined) lists.push(read(member, `metadata.${TRUST_METADATA}`));
  return lists;
}

function read(text: string, param: string): string[] {
  const list = readProviderList(text);
  if (list !== undefined) return list;
  const message = `${param} must be a list of at most 64 provider ids, as in "eth, psi@peer".`;
  throw new ApiError('unknown_provider', message, { param });
}

/** @throws ApiError 403 where nobody is left to be trusted */
export function trustFor(trust: Trust): Trust {
  if (!trustsNobody(trust)) return trust;
  const message = 'No provider is trusted by this ingress (--trust) and this request alike.';
  throw new ApiError('no_trusted_provider', message);
}

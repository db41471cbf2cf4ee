import { ApiError } from '../../shared/openai/errors.ts';

/**
 * Ways to restrict where a request may go that this version does not have yet. A client that sends one relies on it: its
 * prompts must not go where it asked them not to, so the request is refused rather than served without the restriction.
 */
const HEADERS = ['x-otela-require'] as const;
const METADATA = ['otela_require'] as const;

/** @throws ApiError 400 invalid_requirement */
export function refuseHeaders(request: Request): void {
  for (const name of HEADERS) if (request.headers.has(name)) throw unsupported(name, name);
}

/** The same in the body. @throws ApiError 400 invalid_requirement */
export function refuseMetadata(metadata: Readonly<Record<string, string>> | undefined): void {
  if (metadata === undefined) return;
  for (const name of METADATA) if (metadata[name] !== undefined) throw unsupported(`metadata.${name}`, 'metadata');
}

function unsupported(what: string, param: string): ApiError {
  const message = `This gateway cannot yet restrict a request by ${what}; leave it out to have the request served by any node.`;
  return new ApiError('invalid_requirement', message, { param });
}

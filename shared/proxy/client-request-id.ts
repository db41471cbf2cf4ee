import { REQUEST_ID_PATTERN } from '../openai/forwarded-headers.ts';

/** The client's own `x-request-id`, if it is well-formed. */
export function clientRequestId(request: { header(name: string): string | null | undefined }): string | undefined {
  const given = request.header('x-request-id');
  return given !== null && given !== undefined && REQUEST_ID_PATTERN.test(given) ? given : undefined;
}

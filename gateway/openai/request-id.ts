/** What a client may choose as its request id: it goes into logs, headers and file names. */
const WELL_FORMED = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** The client's `x-request-id` if it is well formed, else a new one. */
export function requestIdOf(request: Request): string {
  const given = request.headers.get('x-request-id');
  return given !== null && WELL_FORMED.test(given) ? given : crypto.randomUUID();
}

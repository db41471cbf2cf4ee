/**
 * The path below which a proxy shows this gateway, such as `/rnode/HOST/PORT` in Open OnDemand. The proxy removes it from
 * the path of each request, and names it in X-Forwarded-Prefix. For a proxy that does neither, the Node host does both
 * (`serve --base-path`).
 */
import type { HttpRequest } from './http-request.ts';

export const PREFIX_HEADER = 'x-forwarded-prefix';
/** Segments that need no escape in a cookie or a Location header. No host can be read into it. */
const BASE_PATH = /^(?:\/[\w.~-]{1,128}){1,10}$/;

export function isBasePath(text: string): boolean {
  return BASE_PATH.test(text) && !/\/\.{1,2}(?:\/|$)/.test(text);
}

/** Returns the path without a slash at its end. Empty: the gateway is at the root of its origin. */
export function basePathOf({ headers }: Pick<HttpRequest, 'headers'>): string {
  const prefix = headers.get(PREFIX_HEADER)?.replace(/\/$/, '') ?? '';
  return isBasePath(prefix) ? prefix : '';
}

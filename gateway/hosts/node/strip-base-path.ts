import type { IncomingMessage } from 'node:http';
import { PREFIX_HEADER } from '../../http/base-path.ts';

/**
 * Removes the path of `serve --base-path` from the URL of a request and names it in X-Forwarded-Prefix. A proxy that
 * removed it already is served, too. Returns the address to which a browser must go instead: without the slash at the
 * end of the path, it could not find the files of the page.
 */
export function stripBasePath(message: IncomingMessage, basePath: string | undefined): string | undefined {
  const { url = '/', headers, rawHeaders } = message;
  if (basePath === undefined) return undefined;
  if (headers[PREFIX_HEADER] === undefined) {
    headers[PREFIX_HEADER] = basePath;
    rawHeaders.push(PREFIX_HEADER, basePath);
  }
  if (!url.startsWith(basePath)) return undefined;
  const rest = url.slice(basePath.length);
  if (rest === '' || rest.startsWith('?')) return `${basePath}/${rest}`;
  if (rest.startsWith('/')) message.url = rest;
  return undefined;
}

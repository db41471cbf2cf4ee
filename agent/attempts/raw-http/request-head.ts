/** Writes the head of a request to the engine, if all HTTP/1.1 parsers read it in the same way (RFC 9112). */

import { FRAMING_HEADERS, HEADER_NAME } from '../../../shared/text/http-head.ts';

const PATH = /^\/[\x21-\x7e]*$/;
const HOST = /^[\w.:[\]-]+$/;
/** The gateway sends headers of clients, so a value must not contain the end of a line. */
const VALUE = /^[\t\x20-\x7e]*$/;
/** A client's headers with one of these names would contradict those that are written here. */
const SPECIAL: ReadonlySet<string> = new Set([...FRAMING_HEADERS, 'content-length', 'host']);

interface RequestHead {
  method: string;
  path: string;
  host: string;
  /** Names and values, alternating. */
  headers: readonly string[];
  bodyLength: number;
}

/** Undefined: the request is for undici. */
export function requestHead({ method, path, host, headers, bodyLength }: RequestHead): string | undefined {
  if (method !== 'POST' || !PATH.test(path) || !HOST.test(host)) return undefined;
  let head = `POST ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\ncontent-length: ${bodyLength}\r\n`;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const [name = '', value = ''] = [headers[at], headers[at + 1]];
    if (!HEADER_NAME.test(name) || !VALUE.test(value) || SPECIAL.has(name.toLowerCase())) return undefined;
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n`;
}

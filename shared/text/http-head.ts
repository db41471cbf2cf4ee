/**
 * The grammar of HTTP/1.1 heads (RFC 9110 §5, RFC 9112), for code that reads or writes them without `node:http`. The
 * input is untrusted: no part of a line can match in two ways, so that backtracking costs no time.
 */

const NAME = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";

export const END_OF_HEAD = '\r\n\r\n';

/** Maximum length of a head; the same as Node's. */
export const HEAD_MAX_BYTES = 16 * 1024;

export const HEADER_NAME = new RegExp(`^${NAME}$`);

/** A header of ASCII only. */
export const ASCII_HEADER_LINE = new RegExp(`^(${NAME}):([\\t\\x20-\\x7e]*)$`);

/** A header, read as latin1: each character is a byte. The value may have bytes from 0x80. */
export const HEADER_LINE = new RegExp(`^(${NAME}):([\\t\\x20-\\x7e\\x80-\\xff]*)$`);

/** Headers that, like content-length, change how a body or a connection must be read. */
export const FRAMING_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

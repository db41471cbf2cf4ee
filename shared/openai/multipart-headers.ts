/**
 * Header values of multipart/form-data (RFC 7578). The scan of the model and the measurement of the audio share them,
 * because a body that they split differently would be served and not counted.
 */

export const MAX_PART_HEADER_BYTES = 16 * 1024;
/** Allowed boundaries (RFC 2046 §5.1.1). */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

/** One parameter of a header value: token or quoted-string with backslash escapes. */
const PARAMETER = /\s*;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]*))/y;

/** Parameters after the first word of a header value, with names in lower case. Undefined if a parameter is invalid. */
export function headerParameters(value: string): Map<string, string> | undefined {
  const start = value.indexOf(';');
  const found = new Map<string, string>();
  PARAMETER.lastIndex = start < 0 ? value.length : start;
  while (PARAMETER.lastIndex < value.length) {
    const from = PARAMETER.lastIndex;
    const match = PARAMETER.exec(value);
    if (match === null) return /^[\s;]*$/.test(value.slice(from)) ? found : undefined;
    const [, name = '', quoted, token = ''] = match;
    const key = name.toLowerCase();
    if (found.has(key)) return undefined;
    found.set(key, quoted ?? token);
  }
  return found;
}

/** The boundary of a content type. Undefined if it has none that is valid. */
export function multipartBoundary(contentType: string): string | undefined {
  const boundary = headerParameters(contentType)?.get('boundary');
  return boundary !== undefined && BOUNDARY.test(boundary) ? boundary : undefined;
}

import type { HeaderList } from '../../shared/wire/header-codec.ts';
import { HEADER_NAME_MAX_BYTES, HEADERS_MAX, TEXT_MAX_BYTES } from '../../shared/wire/protocol-constants.ts';

/**
 * Response headers of the engine that are not sent into the tunnel. The gateway filters headers again, by its own list.
 */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
  'date',
  'server',
  'trailer',
  'upgrade',
  'set-cookie',
]);

/**
 * Returns the headers that are sent into the tunnel. `headers`: names in lower case, and values. The content-type comes
 * first, so that the limit on headers never drops it. It decides how the body is parsed.
 */
export function engineHeaders(headers: readonly (readonly [name: string, value: string])[]): HeaderList {
  const list: [string, string][] = [];
  for (const isType of [true, false]) {
    for (const [name, value] of headers) {
      if ((name === 'content-type') !== isType || HOP_BY_HOP.has(name) || name.length > HEADER_NAME_MAX_BYTES) continue;
      if (list.length < HEADERS_MAX && value.length <= TEXT_MAX_BYTES / 2) list.push([name, value]);
    }
  }
  return list;
}

import { ApiError } from '../../shared/openai/api-errors.ts';

const ONE_RANGE = /^bytes=(\d{0,15})-(\d{0,15})$/;

/**
 * Parses the range of a file that a client requests (RFC 9110 §14). Undefined: the whole file. Several ranges and
 * unknown units are ignored, so the client gets the whole file, which RFC 9110 allows.
 * @throws ApiError 416
 */
export function rangeOf(header: string | undefined, bytes: number): { offset: number; length: number } | undefined {
  const [, from = '', to = ''] = ONE_RANGE.exec(header ?? '') ?? [];
  if (from === '' && to === '') return undefined;
  if (from !== '' && to !== '' && Number(to) < Number(from)) return undefined;
  const offset = from === '' ? Math.max(0, bytes - Number(to)) : Number(from);
  const end = from === '' || to === '' ? bytes : Math.min(bytes, Number(to) + 1);
  if (offset < end) return { offset, length: end - offset };
  throw new ApiError('range_not_satisfiable', `The file has ${bytes} bytes.`, {
    headers: { 'content-range': `bytes */${bytes}` },
  });
}

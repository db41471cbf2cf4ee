import { isImmutable } from '../../platform/immutable.ts';

/** A value that is nested more deeply than this is copied by `structuredClone`, because it may contain itself. */
const DEPTH_MAX = 32;
const OTHER = Symbol('not a plain value');

/**
 * Returns a copy as `structuredClone` makes it. Calls between objects consist of lists and plain objects, and each
 * request makes several; these are copied here in a tenth of the time. Everything else is copied by `structuredClone`.
 * An immutable part is not copied.
 * @throws DataCloneError if a value cannot be copied, such as a function
 */
export function clonePlain(value: unknown): unknown {
  const copy = plainCopy(value, DEPTH_MAX);
  return copy === OTHER ? structuredClone(value) : copy;
}

function plainCopy(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null)
    return typeof value === 'function' || typeof value === 'symbol' ? OTHER : value;
  if (isImmutable(value)) return value;
  if (depth === 0) return OTHER;
  if (Array.isArray(value)) return listCopy(value, depth);
  return Object.getPrototypeOf(value) === Object.prototype ? recordCopy(value, depth) : OTHER;
}

function listCopy(list: readonly unknown[], depth: number): unknown {
  const copy: unknown[] = [];
  for (const member of list) {
    const copied = plainCopy(member, depth - 1);
    if (copied === OTHER) return OTHER;
    copy.push(copied);
  }
  return copy;
}

/** V8 copies all members of a record by one step if its shape is known. Then only its lists and records are copied. */
function recordCopy(record: object, depth: number): unknown {
  const copy: Record<string, unknown> = { ...record };
  for (const name in copy) {
    const member = copy[name];
    if (member === null || (typeof member !== 'object' && typeof member !== 'function' && typeof member !== 'symbol'))
      continue;
    const copied = plainCopy(member, depth - 1);
    if (copied === OTHER) return OTHER;
    copy[name] = copied;
  }
  return Object.getOwnPropertySymbols(copy).length === 0 ? copy : OTHER;
}

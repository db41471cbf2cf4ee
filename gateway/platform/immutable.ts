const values = new WeakSet<object>();

/**
 * Freezes a value that consists of lists and plain objects, at every depth, and returns it. A host that has its objects
 * in one process passes such a value from object to object without copying it.
 */
export function immutable<T extends object>(value: T): Readonly<T> {
  if (values.has(value)) return value;
  for (const member of Object.values(value)) if (typeof member === 'object' && member !== null) immutable(member);
  values.add(Object.freeze(value));
  return value;
}

/** True if `immutable` has frozen the value. */
export function isImmutable(value: object): boolean {
  return Object.isFrozen(value) && values.has(value);
}

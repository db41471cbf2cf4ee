/** A text contains U+0000. Some databases store it, PostgreSQL does not. */
export class UnstorableTextError extends Error {
  constructor() {
    super('a text contains U+0000');
    this.name = 'UnstorableText';
  }
}

/** True if this is the cause of a failed query. */
export function isUnstorableText(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof UnstorableTextError) return true;
  return false;
}

/** States of nodes as in sinfo(1) under NODE STATE CODES. */

/** `planned` waits for a large job of the backfill scheduler; shorter jobs still start on it. */
const OPEN = new Set(['idle', 'mix', 'mixed', 'plnd', 'planned']);
/** Powered down until a job wants the node; powering up; planned for a larger job. */
const OPEN_SUFFIXES = new Set(['~', '#', '-']);

/**
 * True if the node starts jobs: `idle`, `mix-`, `idle~`. These suffixes mean it does not: `*` (not responding), `!` and
 * `%` (powering down), `$` (reserved for maintenance), `@` and `^` (rebooting). An unknown word or suffix counts as no.
 */
export function takesJobs(state: string): boolean {
  const [, word = '', suffixes = ''] = /^([a-z]+)([^a-z]*)$/.exec(state.trim().toLowerCase()) ?? [];
  return OPEN.has(word) && [...suffixes].every((suffix) => OPEN_SUFFIXES.has(suffix));
}

/** States of nodes as sinfo(1) writes them under NODE STATE CODES. */

/** `planned` waits for a large job that the backfill scheduler has planned: shorter jobs still begin on it. */
const OPEN = new Set(['idle', 'mix', 'mixed', 'plnd', 'planned']);
/** Powered down until a job wants the node; powering up; planned for a larger job. */
const OPEN_SUFFIXES = new Set(['~', '#', '-']);

/**
 * Whether the node starts jobs: `idle`, `mix-`, `idle~`. Suffixes that say otherwise: `*` (does not answer), `!` and `%` (powering
 * down), `$` (reserved for maintenance), `@` and `^` (reboots). An unknown word or suffix is no.
 */
export function takesJobs(state: string): boolean {
  const [, word = '', suffixes = ''] = /^([a-z]+)([^a-z]*)$/.exec(state.trim().toLowerCase()) ?? [];
  return OPEN.has(word) && [...suffixes].every((suffix) => OPEN_SUFFIXES.has(suffix));
}

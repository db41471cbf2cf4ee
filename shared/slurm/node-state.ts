/** States of nodes, as sinfo(1) describes them under NODE STATE CODES. */

/**
 * States in which nodes start jobs. Nodes in the state `planned` wait for a large job of the backfill scheduler, but
 * still start shorter jobs.
 */
const OPEN = new Set(['idle', 'mix', 'mixed', 'plnd', 'planned']);
/**
 * Suffixes of nodes that start jobs: `~` powered down until a job needs the node, `#` powering up, `-` planned for a
 * larger job.
 */
const OPEN_SUFFIXES = new Set(['~', '#', '-']);

/**
 * True if a node in this state starts jobs: `idle`, `mix-`, `idle~`. Nodes with the suffixes `*` (not responding), `!`
 * and `%` (powering down), `$` (reserved for maintenance), `@` and `^` (rebooting) start no jobs. An unknown word or
 * suffix counts as not starting jobs.
 */
export function takesJobs(state: string): boolean {
  const [, word = '', suffixes = ''] = /^([a-z]+)([^a-z]*)$/.exec(state.trim().toLowerCase()) ?? [];
  return OPEN.has(word) && [...suffixes].every((suffix) => OPEN_SUFFIXES.has(suffix));
}

/**
 * How long a silent follower still counts as connected. After that it may use its share of each limit, and the primary
 * uses the rest, so both need the same time: the follower sends it with each request, by how long answers take.
 */
export const FOLLOWER_SILENT_MS = 4_000;
/** The upper bound: requests at a follower wait this long after the primary has died. */
export const SILENCE_MAX_MS = 20_000;

/**
 * How long the first counts for a follower that it does not hear. After that the follower may allow its part of each limit, and the first
 * the rest, so both must mean the same time: the follower says it with each question, by how long answers take it.
 */
export const SILENCE_MS = 4_000;
/** However slow the two are: requests at a follower wait so long when its first has died. */
export const SILENCE_MAX_MS = 20_000;

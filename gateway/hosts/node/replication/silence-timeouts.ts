/**
 * Minimum time without contact after which a follower counts as disconnected. Then the follower may use its share of
 * each limit, and the primary uses the rest, so both must use the same time. The follower sends it with each request;
 * it is longer if answers take longer.
 */
export const FOLLOWER_SILENT_MS = 4_000;
/**
 * Maximum time without contact after which a follower counts as disconnected. When the primary dies, requests at a
 * follower wait at most this long.
 */
export const SILENCE_MAX_MS = 20_000;

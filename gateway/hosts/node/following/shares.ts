/** What a gateway may allow of a limit while it does not hear the other: parts that are exact in sum. Pure. */

import type { Reservation } from '../../../accounts/limits/limiter.ts';
import type { Limits } from '../../../accounts/limits/limits.ts';

/** Of each limit, how much a follower allows that is alone; several followers divide it. */
export const FOLLOWERS_SHARE = 0.5;

const COUNTED = ['requests_per_minute', 'tokens_per_minute', 'concurrent_requests', 'tokens_per_month'] as const;

/** A part of limits: followers' parts are rounded down, and the first has what they leave. */
export type Part = { of: 'first'; followersAway: number; followers: number } | { of: 'follower'; followers: number };

export function partOf(limit: number, part: Part): number {
  const each = Math.floor((limit * FOLLOWERS_SHARE) / Math.max(1, part.followers));
  return part.of === 'follower' ? each : limit - each * part.followersAway;
}

export interface Shared {
  asked: Reservation;
  /** Of a limit nothing is left: the follower's part of one request is none. */
  nothing: boolean;
}

/** Tokens of this month that others booked. */
export interface Elsewhere {
  key: number;
  project: number;
}

export function shared(asked: Reservation, part: Part, elsewhere: Elsewhere = { key: 0, project: 0 }): Shared {
  const key = sharedLimits(asked.key, part, elsewhere.key);
  const project = sharedLimits(asked.project, part, elsewhere.project);
  return { asked: { ...asked, key: key.limits, project: project.limits }, nothing: key.nothing || project.nothing };
}

function sharedLimits(
  limits: Limits | undefined,
  part: Part,
  elsewhere: number,
): { limits: Limits | undefined; nothing: boolean } {
  if (limits === undefined) return { limits, nothing: false };
  const parts: Limits = { ...limits };
  let nothing = false;
  for (const name of COUNTED) {
    const limit = limits[name];
    if (limit === undefined) continue;
    const mine = partOf(limit, part);
    if (mine < 1) nothing = true;
    // The month's count has what others booked in it.
    parts[name] = name === 'tokens_per_month' ? Math.min(limit, mine + elsewhere) : mine;
  }
  return { limits: parts, nothing };
}

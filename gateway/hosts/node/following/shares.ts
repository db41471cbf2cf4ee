/** What a gateway may allow of a limit while it does not hear the other: parts that are exact in sum. Pure. */

import type { Reservation } from '../../../accounts/limits/limiter.ts';
import { type Limits, limitsOfModel } from '../../../accounts/limits/limits.ts';
import { GPU, modelMeter, PROJECT, userMeter } from '../../../accounts/limits/parties.ts';

/** Of each limit, how much a follower allows that is alone; several followers divide it. */
export const FOLLOWERS_SHARE = 0.5;

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

/** What others booked this month, by the id of a meter: tokens, under GPU milliseconds. */
export type Elsewhere = (id: string) => number;

export function shared(asked: Reservation, part: Part, elsewhere: Elsewhere = () => 0): Shared {
  const sharing = { part, elsewhere, model: asked.model };
  const key = sharedLimits(asked.key, asked.keyId, sharing);
  const project = sharedLimits(asked.project, PROJECT, sharing);
  const user = sharedLimits(asked.user, userMeter(asked.userId ?? ''), sharing);
  return {
    asked: { ...asked, key: key.limits, project: project.limits, user: user.limits },
    nothing: key.nothing || project.nothing || user.nothing,
  };
}

interface Sharing {
  part: Part;
  elsewhere: Elsewhere;
  model: string | undefined;
}

/** The parts of `limits`, and of what they say of the model that is asked for; what they say of others stays out. */
function sharedLimits(
  limits: Limits | undefined,
  id: string,
  sharing: Sharing,
): { limits: Limits | undefined; nothing: boolean } {
  if (limits === undefined) return { limits, nothing: false };
  const { part, elsewhere, model } = sharing;
  const { models: _, ...parts } = limits;
  let nothing = false;
  const share = (name: Exclude<keyof typeof parts, 'reasoning_tokens_per_request'>, booked?: number) => {
    const limit = parts[name];
    if (limit === undefined) return;
    const mine = partOf(limit, part);
    if (mine < 1) nothing = true;
    // The month's count has what others booked in it.
    parts[name] = booked === undefined ? mine : Math.min(limit, mine + booked);
  };
  share('requests_per_minute');
  share('tokens_per_minute');
  share('concurrent_requests');
  share('tokens_per_month', elsewhere(id));
  share('gpu_seconds_per_month', Math.floor(elsewhere(`${GPU}${id}`) / 1_000));
  const ofModel = model === undefined ? undefined : limitsOfModel(limits, model);
  if (model === undefined || ofModel === undefined) return { limits: parts, nothing };
  const inner = sharedLimits(ofModel, modelMeter(id, model), sharing);
  return { limits: { ...parts, models: { [model]: inner.limits ?? {} } }, nothing: nothing || inner.nothing };
}

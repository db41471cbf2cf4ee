/**
 * Computes which part of a limit a gateway may use while it has no contact with the other gateways. The parts of all
 * gateways add up to the limit. Pure.
 */

import { GPU_METER_PREFIX, modelMeter, PROJECT_METER, userMeter } from '../../../accounts/limits/limit-subjects.ts';
import type { Reservation } from '../../../accounts/limits/limiter.ts';
import { type Limits, limitsOfModel } from '../../../settings/limits-schema.ts';

/** The part of each limit that disconnected followers may use together. The primary has the rest. */
const FOLLOWERS_SHARE = 0.5;

/** A share of limits. Followers' shares are rounded down, and the primary has the rest. */
export type QuotaShare =
  | { of: 'first'; followersAway: number; followers: number }
  | { of: 'follower'; followers: number };

export function shareOfLimit(limit: number, part: QuotaShare): number {
  const each = Math.floor((limit * FOLLOWERS_SHARE) / Math.max(1, part.followers));
  return part.of === 'follower' ? each : limit - each * part.followersAway;
}

interface SharedReservation {
  asked: Reservation;
  /** True if this gateway's share of a limit is zero, as a follower's share of a limit of one request is. */
  nothing: boolean;
}

/**
 * Takes a meter's id. Returns what other gateways recorded for the meter this month: tokens, or milliseconds if the id
 * has the GPU prefix.
 */
export type RemoteUsage = (id: string) => number;

export function shareReservation(
  asked: Reservation,
  part: QuotaShare,
  elsewhere: RemoteUsage = () => 0,
): SharedReservation {
  const sharing = { part, elsewhere, model: asked.model };
  const key = sharedLimits(asked.key, asked.keyId, sharing);
  const project = sharedLimits(asked.project, PROJECT_METER, sharing);
  const user = sharedLimits(asked.user, userMeter(asked.userId ?? ''), sharing);
  return {
    asked: { ...asked, key: key.limits, project: project.limits, user: user.limits },
    nothing: key.nothing || project.nothing || user.nothing,
  };
}

interface Sharing {
  part: QuotaShare;
  elsewhere: RemoteUsage;
  model: string | undefined;
}

/** Returns the shares of `limits`, and of the limits for the requested model. Limits for other models are omitted. */
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
    const mine = shareOfLimit(limit, part);
    if (mine < 1) nothing = true;
    // The month's count includes what other gateways recorded, so this gateway's share is added to that.
    parts[name] = booked === undefined ? mine : Math.min(limit, mine + booked);
  };
  share('requests_per_minute');
  share('tokens_per_minute');
  share('concurrent_requests');
  share('tokens_per_month', elsewhere(id));
  share('gpu_seconds_per_month', Math.floor(elsewhere(`${GPU_METER_PREFIX}${id}`) / 1_000));
  const ofModel = model === undefined ? undefined : limitsOfModel(limits, model);
  if (model === undefined || ofModel === undefined) return { limits: parts, nothing };
  const inner = sharedLimits(ofModel, modelMeter(id, model), sharing);
  return { limits: { ...parts, models: { [model]: inner.limits ?? {} } }, nothing: nothing || inner.nothing };
}

/**
 * A policy of an operator's own: requests leave nodes alone whose Slurm job ends within five minutes, while others serve the model.
 * Copy this file to gateway/routing/custom.ts, start or deploy the gateway anew, and set the policy `leave-ending-jobs` for the
 * installation, a model or a key (docs/routing.md).
 */
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import type { Policy } from '../../shared/routing/policy.ts';

const LEAVE_MS = 5 * 60_000;

const leaveEndingJobs: Policy = {
  name: 'leave-ending-jobs',
  pick(candidates, request, random) {
    const soon = Date.now() + LEAVE_MS;
    const lasting = candidates.filter(({ jobEndsAt }) => jobEndsAt === undefined || jobEndsAt > soon);
    return leastLoadPolicy.pick(lasting.length > 0 ? lasting : candidates, request, random);
  },
  // A policy that learns counts here what it sent where, and how that ended.
  onRequestStart() {},
  onRequestEnd() {},
};

export const customPolicies: readonly Policy[] = [leaveEndingJobs];

/**
 * An example of a custom policy: requests avoid nodes with a Slurm job that ends within five minutes, while others
 * serve the model. `otela-gateway serve --policy leave-ending-jobs.ts` or `otela-agent start --ingress … --policy
 * leave-ending-jobs.ts` (docs/routing.md).
 */
import type { Policy } from '../../shared/routing/routing-policy.ts';

const LEAVE_MS = 5 * 60_000;

const leaveEndingJobs: Policy = {
  name: 'leave-ending-jobs',
  pick(candidates) {
    const soon = Date.now() + LEAVE_MS;
    const lasting = candidates.filter(({ jobEndsAt }) => jobEndsAt === undefined || jobEndsAt > soon);
    if (lasting.length === candidates.length || lasting.length === 0) return undefined; // the default chooses
    return lasting.reduce((best, one) => (one.inFlight < best.inFlight ? one : best));
  },
  // A policy that learns counts here where it sent requests, and how they ended.
  onRequestStart() {},
  onRequestEnd() {},
};

export const customPolicies: readonly Policy[] = [leaveEndingJobs];

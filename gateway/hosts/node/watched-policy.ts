/** An operator's policy in this process; its faults are logged and counted. */
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { guarded } from '../../../shared/routing/policies/operator-policies.ts';
import type { Policy } from '../../../shared/routing/policy.ts';
import type { Env } from '../../env.ts';
import { POLICY_FAULTS } from '../../observe/families.ts';
import { Reporter } from '../../observe/report.ts';

/** How often each kind of fault is logged. */
const TOLD_MS = 60_000;

interface Around {
  env: Env;
  log(line: string): void;
  waitUntil(work: Promise<unknown>): void;
}

export function watched(policy: Policy, { env, log, waitUntil }: Around): Policy {
  const reporter = new Reporter();
  const told = new Map<string, number>();
  return guarded(policy, {
    fallback: leastLoadPolicy,
    now: () => performance.now(),
    cpuMs,
    onFault: (kind, why) => {
      reporter.counts.count(POLICY_FAULTS, [policy.name, kind]);
      reporter.touch(env, { waitUntil }, Date.now());
      const now = performance.now();
      if (now - (told.get(kind) ?? Number.NEGATIVE_INFINITY) < TOLD_MS) return;
      told.set(kind, now);
      log(`policy ${policy.name}: ${why}; the default chooses`);
    },
  });
}

/** Processor time of this thread, milliseconds. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

import type { Policy } from '../../shared/routing/policy.ts';

/** Policies of this installation's operator: see docs/routing.md. */
export const customPolicies: readonly Policy[] = [];

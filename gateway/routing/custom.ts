import type { Policy } from '../../shared/routing/policy.ts';

/** Policies of this installation's operator, whose own file takes the place of this one: see docs/routing.md. */
export const customPolicies: readonly Policy[] = [];

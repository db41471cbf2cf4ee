import { SHIPPED_POLICIES } from '../../shared/routing/policies/shipped.ts';
import { customPolicies } from './custom.ts';

/** Those that are shipped, then those that an operator added. */
export const POLICY_NAMES: readonly string[] = [...SHIPPED_POLICIES, ...customPolicies.map(({ name }) => name)];

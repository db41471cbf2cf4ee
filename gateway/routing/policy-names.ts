import { SHIPPED_POLICIES } from '../../shared/routing/policies/shipped.ts';
import { customPolicies, loadedPolicies } from './custom.ts';

/** The names of the shipped policies, then those that an operator added. */
export function policyNames(): string[] {
  return [...SHIPPED_POLICIES, ...[...customPolicies, ...loadedPolicies()].map(({ name }) => name)];
}

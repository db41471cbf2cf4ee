import type { Policy } from '../../shared/routing/routing-policy.ts';

/** Routing policies of this installation. Its operator replaces this file: see docs/routing.md. */
export const customPolicies: readonly Policy[] = [];

let loaded: readonly Policy[] = [];

/**
 * Sets the policies of `serve --policy`, before the first request. The first of them is the default if no setting names
 * a policy.
 */
export function setLoadedPolicies(policies: readonly Policy[]): void {
  loaded = policies;
}

export function loadedPolicies(): readonly Policy[] {
  return loaded;
}

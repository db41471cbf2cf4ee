import type { Policy } from '../routing-policy.ts';

/** A policy that learns nothing from how requests end. */
export function statelessPolicy(name: string, pick: Policy['pick']): Policy {
  return { name, pick, onRequestStart: () => {}, onRequestEnd: () => {} };
}

import type { Policy } from '../routing-policy.ts';

/** A policy that ignores when requests start and how they end. */
export function statelessPolicy(name: string, pick: Policy['pick']): Policy {
  return { name, pick, onRequestStart: () => {}, onRequestEnd: () => {} };
}

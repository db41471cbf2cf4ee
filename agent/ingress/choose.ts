import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { randomPolicy } from '../../shared/routing/policy.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Avoided } from './avoided.ts';

/** The nodes of one model, as this agent's replica has them. */
export interface ModelNodes {
  /** SERVING, not suspected, the model ready. */
  readonly ready: readonly RegistryEntry[];
  /** The same, but for a lost path. */
  readonly suspected: readonly RegistryEntry[];
  /** Every session that serves it or did. */
  readonly all: readonly RegistryEntry[];
}

/** The registry as this agent knows it. */
export interface Nodes {
  entries(): Iterable<RegistryEntry>;
  /** Undefined: no session is known that ever served it. */
  model(id: string): ModelNodes | undefined;
}

export interface Question {
  model: string;
  trust: Trust;
  tried: ReadonlySet<string>;
  avoided: Avoided;
  /** Milliseconds since the epoch. */
  now: number;
  random(): number;
}

export interface Choice {
  node: Candidate;
  /** Somebody else could be asked instead. */
  others: boolean;
}

/**
 * The node for the next attempt. Whom the trust set leaves out is not there at all, for no policy and for no last resort: first
 * the others, then those that did not answer lately, then those whose path was lost a moment ago.
 */
export function choose(nodes: Nodes, question: Question): Choice | undefined {
  const { model, avoided, now } = question;
  const known = nodes.model(model);
  if (known === undefined) return undefined;
  const ready = allowed(known.ready, question);
  const well = ready.filter(({ session }) => !avoided.has(session, now));
  const candidates = [well, ready, allowed(known.suspected, question).filter((entry) => isRecent(entry, now))];
  const pool = candidates.find((some) => some.length > 0) ?? [];
  const node = randomPolicy.pick(pool, { model }, question.random);
  return node && { node, others: ready.length > 1 };
}

/** Not tried yet, and trusted. */
function allowed(entries: readonly RegistryEntry[], { tried, trust }: Question): RegistryEntry[] {
  return entries.filter((entry) => !tried.has(entry.session) && isTrusted(trust, entry));
}

/** Suspected a moment ago: it may be coming back. */
function isRecent({ updated_at }: RegistryEntry, now: number): boolean {
  return now - Date.parse(updated_at) < RESUME_WINDOW_MS;
}

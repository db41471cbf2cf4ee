import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { type Candidate, candidatesFor, suspectedFor } from '../../shared/routing/candidates.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import { randomPolicy } from '../../shared/routing/policy.ts';
import { type Requirement, satisfies } from '../../shared/routing/requirements.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Avoided } from './avoided.ts';

export interface Question {
  model: string;
  trust: Trust;
  requirements: readonly Requirement[];
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
export function choose(nodes: NodeIndex, question: Question): Choice | undefined {
  const { model, avoided, now, tried, trust } = question;
  const known = nodes.model(model);
  const ready = candidatesFor(known, tried, trust).filter((entry) => isAllowed(entry, question));
  const well = ready.filter(({ session }) => !avoided.has(session, now));
  const pool =
    well.length > 0 ? well : ready.length > 0 ? ready : lastResort(suspectedFor(known, tried, trust), question);
  const node = randomPolicy.pick(pool, { model }, question.random);
  return node && { node, others: ready.length > 1 };
}

/** Whether it may be asked at all. */
export function isAllowed(entry: RegistryEntry, { trust, requirements, model, now }: Question): boolean {
  return isTrusted(trust, entry) && (requirements.length === 0 || satisfies(entry, requirements, model, now));
}

/** Suspected a moment ago: they may be coming back. */
function lastResort(suspected: readonly RegistryEntry[], question: Question): RegistryEntry[] {
  const recent = ({ updated_at }: RegistryEntry) => question.now - Date.parse(updated_at) < RESUME_WINDOW_MS;
  return suspected.filter((entry) => recent(entry) && isAllowed(entry, question));
}

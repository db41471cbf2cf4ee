import type { Choice } from '../../shared/asking/hand-over.ts';
import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { type Candidate, candidateOf, suspectedFor } from '../../shared/routing/candidates.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import { type Requirement, satisfies } from '../../shared/routing/requirements.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Avoided } from './avoided.ts';
import type { TrustedNodes } from './trusted-nodes.ts';

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

/**
 * The node for the next attempt. Whom the trust set leaves out is not there at all, for no policy and for no last resort: first
 * the others, then those that did not answer lately, then those whose path was lost a moment ago.
 */
export function choose(nodes: TrustedNodes, question: Question): Choice<Candidate> | undefined {
  const { model, avoided, now, tried, trust } = question;
  const ready = meeting(nodes.ready(model, trust, tried), question);
  const well = avoided.size === 0 ? ready : ready.filter(({ session }) => !avoided.has(session, now));
  const lost = () => lastResort(suspectedFor(nodes.index.model(model), tried, trust), question);
  const pool = well.length > 0 ? well : ready.length > 0 ? ready : lost();
  const entry = pool[Math.floor(question.random() * pool.length)];
  return entry && { node: candidateOf(entry, nodes.index.live), others: ready.length > 1 };
}

/** Those that have what the request requires. */
function meeting(entries: readonly RegistryEntry[], question: Question): readonly RegistryEntry[] {
  const { requirements, model, now } = question;
  return requirements.length === 0 ? entries : entries.filter((one) => satisfies(one, requirements, model, now));
}

/** Nodes that may be asked serve it, and none has what the request requires. */
export function unmet(nodes: NodeIndex, question: Question): boolean {
  if (question.requirements.length === 0) return false;
  const { ready = [], suspected = [] } = nodes.model(question.model) ?? {};
  const trusted = [...ready, ...suspected].filter((entry) => isTrusted(question.trust, entry));
  return trusted.length > 0 && meeting(trusted, question).length === 0;
}

/** Suspected a moment ago: they may be coming back. */
function lastResort(suspected: readonly RegistryEntry[], question: Question): readonly RegistryEntry[] {
  const recent = ({ updated_at }: RegistryEntry) => question.now - Date.parse(updated_at) < RESUME_WINDOW_MS;
  return meeting(suspected.filter(recent), question);
}

import type { RegistryEntry } from '../lattice/node.ts';
import type { ModelNodes } from './nodes.ts';
import { isTrusted, type Trust, trustsAllAdmitted } from './trust.ts';

/** A session that a request could go to. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
}

/**
 * The sessions that serve a model now, were not tried yet and may see the request. Requirements will filter here too, before any
 * policy sees a candidate. Each node is looked at once for each change of the model's nodes, not once per request.
 */
export function candidatesFor(
  nodes: ModelNodes | undefined,
  tried: ReadonlySet<string>,
  trust: Trust,
): readonly RegistryEntry[] {
  return nodes === undefined ? [] : untried(trusted(nodes, trust).ready, tried);
}

/** Sessions that would serve it but for a lost path: worth a wait when nobody else is there. */
export function suspectedFor(
  nodes: ModelNodes | undefined,
  tried: ReadonlySet<string>,
  trust: Trust,
): readonly RegistryEntry[] {
  return nodes === undefined ? [] : untried(trusted(nodes, trust).suspected, tried);
}

interface Trusted {
  version: number;
  ready: readonly RegistryEntry[];
  suspected: readonly RegistryEntry[];
}

/** Whom a model's nodes are remembered for: more trust sets than this are rarely in use at once, and lists are as long as the nodes. */
const TRUSTS_MAX = 32;

/** Those who trust all that were admitted are one. */
const remembered = new WeakMap<ModelNodes, Map<Trust | string, Trusted>>();

function trusted(nodes: ModelNodes, trust: Trust): Trusted {
  const key = trustsAllAdmitted(trust) ? trust.own : trust;
  let known = remembered.get(nodes);
  if (known === undefined) {
    known = new Map();
    remembered.set(nodes, known);
  }
  const before = known.get(key);
  if (before?.version === nodes.version) return before;
  const may = (entry: RegistryEntry) => isTrusted(trust, entry);
  const made = { version: nodes.version, ready: nodes.ready.filter(may), suspected: nodes.suspected.filter(may) };
  known.delete(key);
  known.set(key, made);
  const oldest = known.keys().next().value;
  if (known.size > TRUSTS_MAX && oldest !== undefined) known.delete(oldest);
  return made;
}

function untried(entries: readonly RegistryEntry[], tried: ReadonlySet<string>): readonly RegistryEntry[] {
  return tried.size === 0 ? entries : entries.filter(({ session }) => !tried.has(session));
}

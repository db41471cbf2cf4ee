/**
 * Who gets a blob from whom. The node that `coordinatorOf` names answers each asker: read the source, take it from that node, or wait.
 * Answers make a tree: each node sends to at most `fanout` others. What the coordinator knows it learned from askers, who ask again every
 * few seconds: a coordinator that is lost is followed by another, which learns the same from the next questions.
 */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node.ts';
import { digestSchema } from './manifest.ts';

interface CoordinatorOptions {
  /** Nodes that one node sends a blob to. */
  fanout: number;
  /** An asker that was not heard of for so long is gone, and its lease with it. */
  leaseMs?: number;
  /** The same for nodes that hold a blob, which say so less often. */
  holdMs?: number;
  /** Whether gossip still counts a session among the living. */
  lives(session: string): boolean;
}

/** Two: of three, one stream gets too little of a link; docs/weights.md has figures. */
export const FANOUT = 2;
export const LEASE_MS = 15_000;
export const HOLD_MS = 120_000;

/** 186 nodes pull models of 300 files. Beyond it the blob that was not asked for longest is forgotten. */
const BLOBS_MAX = 4096;
const MEMBERS_MAX = 1024;
/** Deeper than any tree of so many members that is not broken. */
const DEPTH_MAX = 64;
const AVOID_MAX = 64;

export const questionSchema = z.strictObject({
  blob: digestSchema,
  /** `holds`: all of it is there. `reads`: from the source. `cannot`: wants it and could not read the source. `drops`: has it no more. */
  role: z.enum(['wants', 'cannot', 'reads', 'holds', 'drops']),
  /** Where the asker gets the blob now, by its own account. */
  parent: sessionSchema.optional(),
  /** Nodes that failed it lately. */
  avoid: z.array(sessionSchema).max(AVOID_MAX).optional(),
});
export type Question = z.infer<typeof questionSchema>;

export const answerSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('read') }),
  z.object({ kind: z.literal('peer'), session: sessionSchema }),
  z.object({ kind: z.literal('wait') }),
  z.object({ kind: z.literal('known') }),
]);
export type Answer = z.infer<typeof answerSchema>;

interface Member {
  role: 'wants' | 'cannot' | 'reads' | 'holds';
  parent: string | undefined;
  /** When it asked last. */
  seen: number;
}

export class Coordinator {
  readonly #options: Required<CoordinatorOptions>;
  /** By blob, least lately asked for first; at most BLOBS_MAX of MEMBERS_MAX. */
  readonly #blobs = new Map<string, Map<string, Member>>();

  constructor(options: CoordinatorOptions) {
    this.#options = { leaseMs: LEASE_MS, holdMs: HOLD_MS, ...options };
  }

  /**
   * `now`: milliseconds of a clock that does not jump. `settled`: the nodes of the cluster have had time to meet. Before that, whom gossip
   * has not brought yet may be reading already, so no node is told to read the source.
   */
  answer(session: string, { blob, role, parent, avoid = [] }: Question, now: number, settled = true): Answer {
    const members = this.#membersOf(blob, now);
    if (role === 'drops') {
      members.delete(session);
      return { kind: 'known' };
    }
    const before = members.get(session);
    if (before === undefined && members.size >= MEMBERS_MAX) return { kind: 'wait' };
    const member: Member = { role, parent: role === 'wants' || role === 'cannot' ? parent : undefined, seen: now };
    // It may have been told to read a moment ago, and the answer was lost.
    if (role === 'wants' && before?.role === 'reads' && parent === undefined) member.role = 'reads';
    members.set(session, member);
    if (role === 'reads' || role === 'holds') return { kind: 'known' };
    if (member.role === 'reads') return { kind: 'read' };
    const kept = this.#kept(members, session, parent, avoid);
    const chosen = kept ?? this.#choose(members, session, avoid);
    member.parent = chosen;
    if (chosen !== undefined) return { kind: 'peer', session: chosen };
    if (rooted(members, avoid) || role === 'cannot' || !settled) return { kind: 'wait' };
    member.role = 'reads';
    return { kind: 'read' };
  }

  /** Members that read or hold a blob, for what people see. */
  roots(blob: string): string[] {
    return [...(this.#blobs.get(blob) ?? [])].filter(([, member]) => isRoot(member)).map(([session]) => session);
  }

  #membersOf(blob: string, now: number): Map<string, Member> {
    const { leaseMs, holdMs, lives } = this.#options;
    const members = this.#blobs.get(blob) ?? new Map<string, Member>();
    this.#blobs.delete(blob);
    this.#blobs.set(blob, members);
    const [oldest] = this.#blobs.keys();
    if (this.#blobs.size > BLOBS_MAX && oldest !== undefined) this.#blobs.delete(oldest);
    for (const [session, { seen, role }] of members)
      if (now - seen > (role === 'holds' ? holdMs : leaseMs) || !lives(session)) members.delete(session);
    return members;
  }

  /** The parent it has, where nothing speaks against it: a tree that is built anew with each question never carries a byte. */
  #kept(members: Map<string, Member>, session: string, parent: string | undefined, avoid: readonly string[]) {
    if (parent === undefined || avoid.includes(parent)) return undefined;
    return depthOf(members, parent, session) === undefined ? undefined : parent;
  }

  /** Nearest to the root first, then the one that sends to the fewest. */
  #choose(members: Map<string, Member>, session: string, avoid: readonly string[]): string | undefined {
    const { fanout } = this.#options;
    const children = new Map<string, number>();
    for (const [id, { parent, role }] of members)
      if (parent !== undefined && id !== session && role !== 'holds')
        children.set(parent, (children.get(parent) ?? 0) + 1);
    let best: { id: string; rank: number } | undefined;
    for (const id of members.keys()) {
      const sends = children.get(id) ?? 0;
      if (id === session || avoid.includes(id) || sends >= fanout) continue;
      const depth = depthOf(members, id, session);
      if (depth === undefined) continue;
      const rank = depth * (fanout + 1) + sends;
      if (best === undefined || rank < best.rank) best = { id, rank };
    }
    return best?.id;
  }
}

function isRoot({ role }: Member): boolean {
  return role === 'reads' || role === 'holds';
}

function rooted(members: Map<string, Member>, avoid: readonly string[]): boolean {
  return [...members].some(([id, member]) => isRoot(member) && !avoid.includes(id));
}

/** Steps from `id` to a node that reads or holds; undefined where none is reached without `without`: no cycles. */
function depthOf(members: Map<string, Member>, id: string, without: string): number | undefined {
  let at: string | undefined = id;
  for (let depth = 0; depth < DEPTH_MAX && at !== undefined && at !== without; depth++) {
    const member: Member | undefined = members.get(at);
    if (member === undefined) return undefined;
    if (isRoot(member)) return depth;
    at = member.parent;
  }
  return undefined;
}

/**
 * Who gets a blob from whom. The node that `coordinatorOf` names answers each asker: read the source, take it from that node, or wait.
 * Answers make a tree: each node sends to at most `fanout` others. What it knows it learned from askers, who ask again every few
 * seconds: a coordinator that is lost is followed by another, which learns the same from the next questions.
 */

export interface CoordinatorOptions {
  /** Nodes that one node sends a blob to. Two: with three, one stream gets too little of a link; docs/weights.md has figures. */
  fanout: number;
  /** An asker that was not heard of for so long is gone, and its lease with it. */
  leaseMs: number;
}

export const FANOUT = 2;
export const LEASE_MS = 15_000;

/** 186 nodes pull models of 300 files. Beyond it the blob that was not asked for longest is forgotten. */
const BLOBS_MAX = 4096;
const MEMBERS_MAX = 1024;
/** Deeper than any tree of so many members that is not broken. */
const DEPTH_MAX = 64;

export interface Question {
  blob: string;
  session: string;
  /** `holds`: all of it is there. `reads`: from the source, whatever it was told. */
  role: 'wants' | 'reads' | 'holds';
  /** Where it gets the blob now, by its own account. */
  parent?: string | undefined;
  /** Nodes that failed it lately. */
  avoid: readonly string[];
}

export type Answer = { kind: 'read' } | { kind: 'peer'; session: string } | { kind: 'wait' } | { kind: 'known' };

interface Member {
  role: Question['role'];
  parent: string | undefined;
  /** Order in which members came: the tree is filled from its root. */
  seen: number;
}

export class Coordinator {
  readonly #options: CoordinatorOptions;
  /** By blob, least lately asked for first; at most BLOBS_MAX of MEMBERS_MAX. */
  readonly #blobs = new Map<string, Map<string, Member>>();

  constructor(options: CoordinatorOptions) {
    this.#options = options;
  }

  /** `now`: milliseconds of a clock that does not jump. */
  answer({ blob, session, role, parent, avoid }: Question, now: number): Answer {
    const members = this.#membersOf(blob, now);
    const before = members.get(session);
    if (before === undefined && members.size >= MEMBERS_MAX) return { kind: 'wait' };
    const member: Member = { role, parent: role === 'wants' ? parent : undefined, seen: now };
    // Its own word counts: this coordinator may be new and know nothing else.
    if (role === 'wants' && before?.role === 'reads' && parent === undefined) member.role = 'reads';
    members.set(session, member);
    if (role !== 'wants') return { kind: 'known' };
    if (member.role === 'reads') return { kind: 'read' };
    const kept = this.#kept(members, session, parent, avoid);
    if (kept !== undefined) return { kind: 'peer', session: kept };
    const chosen = this.#choose(members, session, avoid);
    if (chosen !== undefined) {
      member.parent = chosen;
      return { kind: 'peer', session: chosen };
    }
    member.parent = undefined;
    const rooted = [...members].some(([id, { role }]) => role !== 'wants' && !avoid.includes(id));
    if (rooted) return { kind: 'wait' };
    member.role = 'reads';
    return { kind: 'read' };
  }

  /** It goes, or wants the blob no more. */
  forget(blob: string, session: string): void {
    this.#blobs.get(blob)?.delete(session);
  }

  /** Members that read or hold a blob, for what people see. */
  roots(blob: string): string[] {
    return [...(this.#blobs.get(blob) ?? [])].filter(([, { role }]) => role !== 'wants').map(([session]) => session);
  }

  #membersOf(blob: string, now: number): Map<string, Member> {
    const members = this.#blobs.get(blob) ?? new Map<string, Member>();
    this.#blobs.delete(blob);
    this.#blobs.set(blob, members);
    const [oldest] = this.#blobs.keys();
    if (this.#blobs.size > BLOBS_MAX && oldest !== undefined) this.#blobs.delete(oldest);
    for (const [session, { seen }] of members) if (now - seen > this.#options.leaseMs) members.delete(session);
    return members;
  }

  /** The parent it has, where nothing speaks against it: a tree that is built anew with each question never carries a byte. */
  #kept(members: Map<string, Member>, session: string, parent: string | undefined, avoid: readonly string[]) {
    if (parent === undefined || avoid.includes(parent)) return undefined;
    return depthOf(members, parent, session) === undefined ? undefined : parent;
  }

  /** Nearest to the root first, then the one that sends to the fewest. */
  #choose(members: Map<string, Member>, session: string, avoid: readonly string[]): string | undefined {
    const children = new Map<string, number>();
    for (const [id, { parent }] of members)
      if (parent !== undefined && id !== session) children.set(parent, (children.get(parent) ?? 0) + 1);
    let best: { id: string; rank: number } | undefined;
    for (const id of members.keys()) {
      const sends = children.get(id) ?? 0;
      if (id === session || avoid.includes(id) || sends >= this.#options.fanout) continue;
      const depth = depthOf(members, id, session);
      if (depth === undefined) continue;
      const rank = depth * (this.#options.fanout + 1) + sends;
      if (best === undefined || rank < best.rank) best = { id, rank };
    }
    return best?.id;
  }
}

/** Steps from `id` to a node that reads or holds; undefined where none is reached without `without`: no cycles. */
function depthOf(members: Map<string, Member>, id: string, without: string): number | undefined {
  let at: string | undefined = id;
  for (let depth = 0; depth < DEPTH_MAX && at !== undefined && at !== without; depth++) {
    const member: Member | undefined = members.get(at);
    if (member === undefined) return undefined;
    if (member.role !== 'wants') return depth;
    at = member.parent;
  }
  return undefined;
}

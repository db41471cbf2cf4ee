/**
 * Assigns senders to the nodes that want a blob. The node that `chooseCoordinator` names answers each node's question
 * with one of three instructions: read the source, take the blob from a certain node, or wait. The answers form a tree
 * in which each node sends to at most `fanout` others. The coordinator learns its state only from the questions, which
 * nodes repeat every few seconds. So if a coordinator is lost, the next one learns the same state from the next
 * questions.
 */
import * as z from 'zod';
import { sessionSchema } from '../lattice/node-record.ts';
import { digestSchema } from './weights-manifest.ts';

interface CoordinatorOptions {
  /** Maximum number of nodes to which one node sends a blob at a time. */
  fanout: number;
  /** Milliseconds without a question after which a node is considered gone. */
  leaseMs?: number;
  /** Like `leaseMs`, for nodes that hold the whole blob, because they ask less often. */
  holdMs?: number;
  /** True if gossip considers the session alive. */
  lives(session: string): boolean;
}

/**
 * Default of `fanout`. With three receivers each of them would get too small a part of the link; docs/weights.md has
 * the figures.
 */
export const FANOUT = 2;
export const BLOB_LEASE_MS = 15_000;
const HOLDER_MS = 120_000;

/**
 * Maximum number of memberships. A membership is a pair of a blob and a node that wants or holds it: 186 nodes with a
 * model of 300 files have 55,800. Above the limit the node with the most memberships loses its oldest.
 */
export const MEMBERSHIPS_MAX = 65_536;
const MEMBERS_MAX = 1024;
/** No valid tree of MEMBERSHIPS_MAX members is as deep. It ends the walk to the root of an invalid one. */
const DEPTH_MAX = 64;
const AVOID_MAX = 64;

export const coordinatorQuestionSchema = z.strictObject({
  blob: digestSchema,
  /**
   * `holds`: the node has the whole blob. `reads`: it reads the blob from the source. `wants`: it wants the blob.
   * `cannot`: it wants the blob but could not read the source. `drops`: it no longer has the blob.
   */
  role: z.enum(['wants', 'cannot', 'reads', 'holds', 'drops']),
  /** The node from which this node gets the blob now, by its own report. */
  parent: sessionSchema.optional(),
  /** Nodes that recently failed to send the blob to this node. */
  avoid: z.array(sessionSchema).max(AVOID_MAX).optional(),
});
export type CoordinatorQuestion = z.infer<typeof coordinatorQuestionSchema>;

export const coordinatorAnswerSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('read') }),
  z.object({ kind: z.literal('peer'), session: sessionSchema }),
  z.object({ kind: z.literal('wait') }),
  z.object({ kind: z.literal('known') }),
]);
export type CoordinatorAnswer = z.infer<typeof coordinatorAnswerSchema>;

interface Member {
  role: 'wants' | 'cannot' | 'reads' | 'holds';
  parent: string | undefined;
  /** When the member last asked. */
  seen: number;
}

export class Coordinator {
  readonly #options: Required<CoordinatorOptions>;
  /** Members by blob and session; at most MEMBERSHIPS_MAX in total. */
  readonly #blobs = new Map<string, Map<string, Member>>();
  /** The same memberships by session. The blobs of a session are in the order of their last question, oldest first. */
  readonly #asked = new Map<string, Set<string>>();
  #memberships = 0;

  constructor(options: CoordinatorOptions) {
    this.#options = { leaseMs: BLOB_LEASE_MS, holdMs: HOLDER_MS, ...options };
  }

  /**
   * Answers one question. `now`: milliseconds of a monotonic clock. `settled`: the nodes of the cluster have had time
   * to find each other. Before that, a node that gossip has not announced yet may already be reading, so no node is
   * instructed to read the source.
   */
  answer(
    session: string,
    { blob, role, parent, avoid = [] }: CoordinatorQuestion,
    now: number,
    settled = true,
  ): CoordinatorAnswer {
    const members = this.#membersOf(blob, now);
    if (role === 'drops') {
      this.#forget(blob, session);
      return { kind: 'known' };
    }
    const before = members.get(session);
    if (before === undefined && members.size >= MEMBERS_MAX) return { kind: 'wait' };
    const member: Member = { role, parent: role === 'wants' || role === 'cannot' ? parent : undefined, seen: now };
    // If a node that was instructed to read the source still asks for the blob, that instruction was lost.
    if (role === 'wants' && before?.role === 'reads' && parent === undefined) member.role = 'reads';
    this.#remember(blob, session, member);
    if (role === 'holds') return { kind: 'known' };
    if (role === 'reads') {
      // The source may be slow only for this node. Then the node gets the rest from a node that holds the blob.
      const holder = this.#choose(members, session, avoid, (other) => other.role === 'holds');
      return holder === undefined ? { kind: 'known' } : { kind: 'peer', session: holder };
    }
    if (member.role === 'reads') return { kind: 'read' };
    const currentParent = this.#currentParent(members, session, parent, avoid);
    const chosen = currentParent ?? this.#choose(members, session, avoid);
    member.parent = chosen;
    if (chosen !== undefined) return { kind: 'peer', session: chosen };
    if (rooted(members, avoid) || role === 'cannot' || !settled) return { kind: 'wait' };
    member.role = 'reads';
    return { kind: 'read' };
  }

  /** The sessions that read or hold a blob, for display. */
  roots(blob: string): string[] {
    return [...(this.#blobs.get(blob) ?? [])].filter(([, member]) => isRoot(member)).map(([session]) => session);
  }

  get memberships(): number {
    return this.#memberships;
  }

  #membersOf(blob: string, now: number): ReadonlyMap<string, Member> {
    const { leaseMs, holdMs, lives } = this.#options;
    for (const [session, { seen, role }] of this.#blobs.get(blob) ?? [])
      if (now - seen > (role === 'holds' ? holdMs : leaseMs) || !lives(session)) this.#forget(blob, session);
    return this.#blobs.get(blob) ?? new Map();
  }

  #remember(blob: string, session: string, member: Member): void {
    this.#forget(blob, session);
    const members = this.#blobs.get(blob) ?? new Map<string, Member>();
    const asked = this.#asked.get(session) ?? new Set();
    this.#blobs.set(blob, members.set(session, member));
    this.#asked.set(session, asked.add(blob));
    this.#memberships++;
    if (this.#memberships > MEMBERSHIPS_MAX) this.#makeRoom();
  }

  #forget(blob: string, session: string): void {
    const members = this.#blobs.get(blob);
    const asked = this.#asked.get(session);
    if (members?.delete(session) !== true) return;
    asked?.delete(blob);
    this.#memberships--;
    if (members.size === 0) this.#blobs.delete(blob);
    if (asked?.size === 0) this.#asked.delete(session);
  }

  /**
   * First removes memberships of nodes that have left, then the oldest ones of the node that has the most. So if a node
   * asks for everything, it loses its own memberships.
   */
  #makeRoom(): void {
    for (const [session, asked] of this.#asked)
      if (!this.#options.lives(session)) for (const blob of [...asked]) this.#forget(blob, session);
    while (this.#memberships > MEMBERSHIPS_MAX) {
      const [session, asked] = [...this.#asked].reduce((most, one) => (one[1].size > most[1].size ? one : most));
      const [oldest] = asked;
      if (oldest !== undefined) this.#forget(oldest, session);
    }
  }

  /**
   * The member's current parent, unless the member avoids it or it leads to no root. If each request of a
   * member chose a new parent, the tree would be rebuilt each time, and no byte would be transferred.
   */
  #currentParent(
    members: ReadonlyMap<string, Member>,
    session: string,
    parent: string | undefined,
    avoid: readonly string[],
  ) {
    if (parent === undefined || avoid.includes(parent)) return undefined;
    return depthOf(members, parent, session) === undefined ? undefined : parent;
  }

  /**
   * Chooses the member nearest to a root that can send to a further node. If several are equally near, chooses the
   * member that sends to the fewest others.
   */
  #choose(
    members: ReadonlyMap<string, Member>,
    session: string,
    avoid: readonly string[],
    fits: (member: Member) => boolean = () => true,
  ): string | undefined {
    const { fanout } = this.#options;
    const children = new Map<string, number>();
    for (const [id, { parent, role }] of members)
      if (parent !== undefined && id !== session && role !== 'holds')
        children.set(parent, (children.get(parent) ?? 0) + 1);
    let best: { id: string; rank: number } | undefined;
    for (const [id, member] of members) {
      const sends = children.get(id) ?? 0;
      if (id === session || avoid.includes(id) || sends >= fanout || !fits(member)) continue;
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

function rooted(members: ReadonlyMap<string, Member>, avoid: readonly string[]): boolean {
  return [...members].some(([id, member]) => isRoot(member) && !avoid.includes(id));
}

/**
 * Number of steps from `id` to a node that reads or holds the blob; undefined if every path leads through `without`.
 * Excluding `without` prevents cycles.
 */
function depthOf(members: ReadonlyMap<string, Member>, id: string, without: string): number | undefined {
  let at: string | undefined = id;
  for (let depth = 0; depth < DEPTH_MAX && at !== undefined && at !== without; depth++) {
    const member: Member | undefined = members.get(at);
    if (member === undefined) return undefined;
    if (isRoot(member)) return depth;
    at = member.parent;
  }
  return undefined;
}

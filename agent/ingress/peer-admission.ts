/** Decides if an attempt of a peer institution may begin at this node's engine now. */
import type { PeerAllowance, PeerAllowances } from '../../shared/usage/peer-allowance.ts';
import type { CallerAccount } from '../attempts/caller-account.ts';

/** Requests at this node's engine. */
interface EngineLoad {
  running: number;
  waiting: number;
}

/** The priority of this institution, and of a peer institution without one. */
const OWN_PRIORITY = 0;

/**
 * Counts the attempts of each institution at this node, and compares them with what the peer institutions may use. Shares
 * and priorities count only while requests wait at the engine, so that no place stays free for them.
 */
export class PeerAdmission {
  /** Attempts at this node, by institution; undefined: this one. At most one entry per attempt. */
  readonly #running = new Map<string | undefined, number>();
  /** Attempts of the projects of peer institutions, by `PROJECT@PEER`. At most one entry per attempt. */
  readonly #runningOfProjects = new Map<string, number>();
  #allowances: ReadonlyMap<string, PeerAllowance> = new Map();

  /** Replaces what peer institutions may use. An institution without an allowance has no limit. */
  setAllowances(allowances: PeerAllowances): void {
    this.#allowances = new Map(Object.entries(allowances));
  }

  /** Counts an attempt that begins (1) or that has ended (-1). */
  count(peer: string | undefined, project: string, change: 1 | -1): void {
    add(this.#running, peer, change);
    if (peer !== undefined && project !== '') add(this.#runningOfProjects, `${project}@${peer}`, change);
  }

  /** @param load undefined: unknown, so neither shares nor priorities count */
  refusal(peer: string, project: string, load: EngineLoad | undefined): ReturnType<CallerAccount['refusal']> {
    const allowance = this.#allowances.get(peer);
    if (allowance === undefined) return undefined;
    const over = allowance.over ?? ownMember(allowance.projects, project);
    if (over !== undefined) return { code: 'over_quota', message: `${peer} has reached its limit ${over}` };
    if (load === undefined || load.waiting === 0) return undefined;
    if (this.#yields(allowance.priority))
      return { code: 'overloaded', message: `${peer} waits for institutions with a higher priority` };
    if (isShareUsed(allowance.share, this.#running.get(peer), load))
      return { code: 'overloaded', message: `${peer} has its share of this node` };
    const ofProject = this.#runningOfProjects.get(`${project}@${peer}`);
    if (isShareUsed(ownMember(allowance.project_shares, project), ofProject, load))
      return { code: 'overloaded', message: `a project of ${peer} has its share of this node` };
    return undefined;
  }

  /** True if the node has an attempt of an institution with a higher priority. */
  #yields(priority = OWN_PRIORITY): boolean {
    for (const peer of this.#running.keys()) {
      const other = peer === undefined ? OWN_PRIORITY : (this.#allowances.get(peer)?.priority ?? OWN_PRIORITY);
      if (other > priority) return true;
    }
    return false;
  }
}

/** A share is at least one request, so that a small share is not none. */
function isShareUsed(share: number | undefined, used = 0, { running, waiting }: EngineLoad): boolean {
  return share !== undefined && used >= Math.max(1, Math.floor(share * (running + waiting + 1)));
}

function add<K>(counts: Map<K, number>, key: K, change: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

/** The value of a member. The name comes from a peer institution, so it may be `constructor`. */
function ownMember<V>(record: Readonly<Record<string, V>> = {}, name: string): V | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

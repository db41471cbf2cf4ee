import type { SuspectLine } from '../../../shared/batch/crash-suspects.ts';
import type { LeaseLedger } from '../../../shared/batch/lease-ledger.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import type { RegistrySnapshot } from '../../registry/isolate-snapshot.ts';

/** The leases of a disconnected node are kept for this time, because the node usually reconnects with results. */
const LOST_MS = 15_000;

/**
 * A check adds the time since the previous check to the time for which a node has been lost, but at most this much: a
 * gateway that stalled between two checks did not see which nodes reconnected.
 */
const CHECK_GAP_MAX_MS = 5_000;

/**
 * Reasons for which a node leaves if a line may have ended its engine or its function's process. A lost network, a
 * killed job and a failed machine are not among them, because nodes may disappear at any time.
 */
const CRASHES: ReadonlySet<string | undefined> = new Set(['engine-ended', 'engine-broken', 'out-of-memory']);

/** Tracks nodes that have leases and are not connected according to the registry. */
export class LostNodes {
  /** Milliseconds for which each session has been lost. At most as many entries as leases. */
  readonly #lost = new Map<string, number>();
  #checkedMs: number | undefined;

  /**
   * Ends the leases of nodes that have left, and of nodes that did not reconnect.
   * @param onCrash called for each line that failed because the engine of its node ended
   */
  release(
    ledger: LeaseLedger,
    view: Pick<RegistrySnapshot, 'nodes'>,
    nowMs: number,
    onCrash: (line: SuspectLine, entry: RegistryEntry) => void,
  ): void {
    const holders = new Set(ledger.leases.map(({ lease }) => lease.node));
    for (const node of this.#lost.keys()) if (!holders.has(node)) this.#lost.delete(node);
    const passed = Math.max(0, Math.min(CHECK_GAP_MAX_MS, nowMs - (this.#checkedMs ?? nowMs)));
    this.#checkedMs = nowMs;
    for (const node of holders) {
      const entry = view.nodes.get(node);
      // An unknown session counts as present, because a starting registry does not know all sessions. JOIN is the state
      // of a node without an engine, which runs functions.
      const works = entry?.state === 'SERVING' || entry?.state === 'JOIN';
      const present = entry === undefined || (entry.connected && !entry.suspected && works);
      if (present) {
        this.#lost.delete(node);
        continue;
      }
      const before = this.#lost.get(node);
      const lost = before === undefined ? 0 : before + passed;
      this.#lost.set(node, lost);
      if (entry.state !== 'LEFT' && lost < LOST_MS) continue;
      const crashed = CRASHES.has(entry.leaving);
      if (crashed) for (const line of ledger.suspectLines(node)) onCrash(line, entry);
      ledger.releaseNode(node, crashed);
    }
  }
}

/**
 * The requests according to the engines: which were answered twice, and which continued after their clients had
 * disconnected.
 */
import type { JournalEntry } from '../support/engine/journal.ts';
import type { Result } from './client.ts';
import type { Replica, Spell } from './replica.ts';

/** One request as one engine saw it, in epoch milliseconds. */
interface Work {
  marker: string;
  replica: string;
  begun: number;
  /** Infinite: no end was recorded. */
  ended: number;
  /** `refused`: it ended with a status other than 200. */
  how: 'finished' | 'aborted' | 'refused' | 'unfinished';
  /** The engine's process ended before the request did. */
  died: boolean;
}

export interface Accounts {
  attempts: number;
  /** Answered completely by more than one engine. */
  doubles: number;
  /** Of these: more than one of the engines was reachable all the time. */
  doublesWithinReach: string[];
  /** Milliseconds from a client's disconnect to the end at its engine, on reachable nodes. */
  leftMs: number[];
  /** Requests at reachable engines that continued for more than a second for a disconnected client. */
  leftBehind: string[];
  /** Still generating at the end. */
  generating: string[];
  /**
   * Milliseconds from the moment a node was reachable again to the end of an attempt there that another node had taken
   * over.
   */
  takenOverMs: number[];
}

/**
 * The end of a spell is detected by polling the registry; an attempt that hangs on a node this long after it still
 * counts for the spell.
 */
const AFTER_MS = 2_000;
const LEFT_LIMIT_MS = 1_000;

/** All entries of the journals of all engines. */
function works(replicas: readonly AuditedReplica[]): Work[] {
  return replicas.flatMap((replica) =>
    replica.journals.flatMap((journal, at) => {
      const processes = worksOf(replica.name, replica.entries([journal]));
      const alive = at === replica.journals.length - 1 && replica.running ? processes.at(-1) : undefined;
      for (const work of processes.flat()) work.died = work.how === 'unfinished' && !alive?.includes(work);
      return processes.flat();
    }),
  );
}

/** One list for each process that wrote into the journal, because each numbers its requests from the start. */
function worksOf(replica: string, entries: readonly JournalEntry[]): Work[][] {
  const processes: Work[][] = [];
  const open = new Map<number, Work>();
  for (const { what, id, marker, at, status } of entries) {
    const known = open.get(id);
    if (what === 'up') {
      processes.push([]);
      open.clear();
    } else if (what === 'begun') {
      const ended = Number.POSITIVE_INFINITY;
      const work: Work = { marker, replica, begun: at, ended, how: 'unfinished', died: false };
      open.set(id, work);
      processes.at(-1)?.push(work);
    } else if (known !== undefined) {
      known.ended = at;
      known.how = what === 'finished' && status !== 200 ? 'refused' : what;
    }
  }
  return processes;
}

/** True if the node was paused or cut off at some time during this work. */
function outOfReach(spells: readonly Spell[], from: number, until: number): boolean {
  return spells.some((spell) => spell.outOfReach && spell.from <= until && spell.until + AFTER_MS >= from);
}

/** The part of a replica that the audit reads. */
export type AuditedReplica = Pick<Replica, 'name' | 'spells' | 'journals' | 'running' | 'entries'>;

export function audit(replicas: readonly AuditedReplica[], results: readonly Result[]): Accounts {
  const spells = new Map(replicas.map(({ name, spells }) => [name, spells]));
  const all = works(replicas);
  const excused = ({ replica, begun, ended }: Work, until = ended) =>
    outOfReach(spells.get(replica) ?? [], begun, until);
  const byMarker = Map.groupBy(all, ({ marker }) => marker);
  const doubles = [...byMarker.values()]
    .map((works) => works.filter(({ how }) => how === 'finished'))
    .filter((finished) => finished.length > 1);
  const accounts: Accounts = {
    attempts: all.length,
    doubles: doubles.length,
    doublesWithinReach: doubles
      .filter((works) => works.filter((work) => !excused(work)).length > 1)
      .map((works) => works.map(tell).join(' and ')),
    leftMs: [],
    leftBehind: [],
    generating: all.filter(({ how, died }) => how === 'unfinished' && !died).map(tell),
    takenOverMs: [...byMarker.values()].flatMap((works) => takenOver(works, spells)),
  };
  for (const { wish, verdict, endedAt } of results) {
    if (verdict !== 'left') continue;
    const attempts = byMarker.get(wish.marker) ?? [];
    const firstBegun = Math.min(...attempts.map(({ begun }) => begun));
    for (const work of attempts) {
      // A gateway without processor time reads the request late, and the disconnect right after it. So the first
      // attempt may begin late, and its time counts from there. The time of a further attempt counts from the
      // disconnect.
      const since = work.begun === firstBegun ? Math.max(endedAt, work.begun) : endedAt;
      // A request that had ended before, or at an engine that died, caused no useless work.
      if (work.ended < endedAt || work.died || excused(work, Math.min(work.ended, since + LEFT_LIMIT_MS))) continue;
      accounts.leftMs.push(work.ended - endedAt);
      if (work.ended - since > LEFT_LIMIT_MS)
        accounts.leftBehind.push(`${tell(work)}; its client disconnected at ${new Date(endedAt).toISOString()}`);
    }
  }
  return accounts;
}

/** Attempts that were canceled after a pause or a cut during which another node was tried. */
function takenOver(works: readonly Work[], spells: ReadonlyMap<string, readonly Spell[]>): number[] {
  return works.flatMap((work) => {
    if (work.how !== 'aborted') return [];
    const spell = spells
      .get(work.replica)
      ?.find(({ from, over }) => from < work.ended && over > work.begun && over <= work.ended);
    const other = works.some((one) => one !== work && one.begun > work.begun && one.begun < (spell?.over ?? 0));
    return spell?.outOfReach === true && other ? [work.ended - spell.over] : [];
  });
}

function tell({ marker, replica, begun, ended, how }: Work): string {
  return `${marker} at ${replica}, begun ${new Date(begun).toISOString()}, ${how}${Number.isFinite(ended) ? ` after ${ended - begun} ms` : ''}`;
}

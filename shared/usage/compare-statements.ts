/** Compares what two institutions state about the same requests, and finds what they dispute. */
import { StatementError, type StatementHead } from './signed-statement.ts';
import type { StatementRecord } from './statement-record.ts';

/**
 * Members that both institutions know. Times differ by their clocks, and only the nodes' institution knows all GPUs. The
 * session differs if the node's agent was killed: its successor delivers its records.
 */
const COMPARED = ['provider', 'model', 'project', 'prompt', 'completion', 'cached', 'reasoning'] as const;
type Compared = (typeof COMPARED)[number];

/** Records of one request's attempt. */
export interface Dispute {
  request: string;
  attempt: number;
  /** `ours`, `theirs`: only one of the statements has a record. `twice`: a statement has several. */
  kind: 'ours' | 'theirs' | 'twice' | 'different';
  /** Members that differ. */
  members: readonly Compared[];
  /** True if one of the institutions estimated the counts, because it got none. */
  estimated: boolean;
  ours: readonly StatementRecord[];
  theirs: readonly StatementRecord[];
}

/** Maximum number of records that can be compared: about 1 GB of memory. */
export const COMPARED_MAX = 2_000_000;

interface Both {
  ours: StatementRecord[];
  theirs: StatementRecord[];
}

/** @throws StatementError if the statements are not two views of the same requests */
export function requireCounterparts(ours: StatementHead, theirs: StatementHead): void {
  const why =
    ours.month !== theirs.month
      ? `the statements are of ${ours.month} and ${theirs.month}`
      : ours.side === theirs.side
        ? `both statements are of the side ${ours.side}`
        : ours.issuer !== theirs.peer || ours.peer !== theirs.issuer
          ? 'the statements are of other pairs of institutions'
          : undefined;
  if (why !== undefined) throw new StatementError('wrong_issuer', why);
}

export class StatementComparison {
  readonly #requests = new Map<string, Both>();
  #count = 0;

  /** @throws StatementError too_long */
  add(side: keyof Both, record: StatementRecord): void {
    if (++this.#count > COMPARED_MAX)
      throw new StatementError('too_long', `at most ${COMPARED_MAX} records can be compared`);
    const name = `${record.request}/${record.attempt}`;
    const known = this.#requests.get(name);
    if (known !== undefined) known[side].push(record);
    else this.#requests.set(name, { ours: [], theirs: [], [side]: [record] });
  }

  /** Number of attempts on which the statements agree. */
  get agreed(): number {
    let agreed = 0;
    for (const both of this.#requests.values()) if (disputeOf(both) === undefined) agreed++;
    return agreed;
  }

  /** What the statements dispute, in the order of our records. */
  *disputes(): Iterable<Dispute> {
    for (const both of this.#requests.values()) {
      const dispute = disputeOf(both);
      if (dispute !== undefined) yield dispute;
    }
  }
}

function disputeOf({ ours, theirs }: Both): Dispute | undefined {
  const [own] = ours;
  const [other] = theirs;
  const first = own ?? other;
  if (first === undefined) return undefined;
  const { request, attempt } = first;
  const estimated = [...ours, ...theirs].some((record) => record.estimated);
  const dispute = (kind: Dispute['kind'], members: readonly Compared[] = []): Dispute => ({
    request,
    attempt,
    kind,
    members,
    estimated,
    ours,
    theirs,
  });
  if (ours.length > 1 || theirs.length > 1) return dispute('twice');
  if (own === undefined) return dispute('theirs');
  if (other === undefined) return dispute('ours');
  const members = COMPARED.filter((name) => own[name] !== other[name]);
  return members.length === 0 ? undefined : dispute('different', members);
}

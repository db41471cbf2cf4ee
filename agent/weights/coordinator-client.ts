/**
 * Asks the nodes that coordinate blobs, and reports to them what this node holds. This node may itself coordinate a
 * blob.
 */
import { neverRejects } from '../../shared/timing/in-background.ts';
import {
  Coordinator,
  type CoordinatorAnswer,
  type CoordinatorQuestion,
  FANOUT,
} from '../../shared/weights/blob-coordinator.ts';
import { chooseCoordinator } from '../../shared/weights/choose-coordinator.ts';
import { PeerBlocklist } from '../../shared/weights/peer-blocklist.ts';
import type { WeightsAccess } from './blob-access.ts';
import type { Peers } from './peer-directory.ts';
import { SettleDelay } from './settle-delay.ts';
import type { WeightsClient } from './weights-client.ts';
import { asWeightsError } from './weights-error.ts';
import { ROWS_MAX } from './weights-server.ts';

/** How long a coordinator lets no node read the source after the nearby nodes last changed. */
const SETTLE_MS = 2_000;
/** Interval at which a node reports what it holds, shorter than the coordinator's lease. */
const ANNOUNCE_MS = 40_000;
/**
 * Interval of checks whether a report is due. Changes within it cause one report, because several nodes often arrive
 * together.
 */
const SOON_MS = 250;
/**
 * Blobs whose keys begin with the same digits share a coordinator. It is only one digit, because each further
 * coordinator costs every node a connection.
 */
const SHARD_DIGITS = 1;

interface CoordinatorClientOptions {
  peers: Peers;
  access: WeightsAccess;
  client: WeightsClient;
  fanout?: number;
  settleMs?: number;
  /** Returns the keys of everything that this node holds. */
  held(): Promise<readonly string[]>;
}

export class CoordinatorClient {
  /** Nodes from which no blobs are requested for a while. */
  readonly senders = new PeerBlocklist();
  /**
   * Nodes that are not asked as coordinators for a while. The list is separate from `senders`, because a node that is
   * too busy to send still coordinates. Otherwise two coordinators would plan for one blob.
   */
  readonly #coordinators = new PeerBlocklist();
  readonly #options: CoordinatorClientOptions;
  /** Coordinates blobs of public models, which all nearby nodes share. */
  readonly #shared: Coordinator;
  /**
   * Coordinates manifests and all other blobs. Another provider's node must not be able to claim that it reads them,
   * because this provider's nodes would wait for it.
   */
  readonly #private: Coordinator;
  readonly #stop = new AbortController();
  readonly #startedAt = performance.now();
  readonly #settleDelay: SettleDelay;
  #nearby: ReadonlySet<string> = new Set();
  #providerSessions: ReadonlySet<string> = new Set();
  #nearAt = Number.NaN;
  #announced = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: CoordinatorClientOptions) {
    this.#options = options;
    this.#settleDelay = new SettleDelay(options.settleMs ?? SETTLE_MS);
    const fanout = options.fanout ?? FANOUT;
    const isAlive = (session: string) => session === options.peers.self()?.session || this.#nearPeers().has(session);
    this.#shared = new Coordinator({ fanout, lives: isAlive });
    this.#private = new Coordinator({ fanout, lives: isAlive });
  }

  open(): void {
    this.#timer = setInterval(() => neverRejects(this.#announceWhenDue()), SOON_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  /** Sessions of the nodes with which this one exchanges weights. */
  #nearPeers(): ReadonlySet<string> {
    this.#update();
    return this.#nearby;
  }

  /** The nodes of the cluster that belong to this node's provider. */
  #providerPeers(): ReadonlySet<string> {
    this.#update();
    return this.#providerSessions;
  }

  #update(): void {
    const { peers, access } = this.#options;
    const at = peers.changedAt();
    if (this.#nearAt === at) return;
    const near = peers.others().filter((peer) => access.isNear(peer));
    this.#nearby = new Set(near.map(({ session }) => session));
    this.#providerSessions = new Set(near.filter((peer) => access.isSameProvider(peer)).map(({ session }) => session));
    this.#nearAt = at;
  }

  /** True if this node knows no other node that could coordinate. */
  get alone(): boolean {
    return this.#nearPeers().size === 0;
  }

  /**
   * Answers another node's questions.
   * @param providerOnly true if the questions concern data for nodes of one provider, and the asking node belongs to
   * that provider
   */
  answer(session: string, questions: readonly CoordinatorQuestion[], providerOnly: boolean): CoordinatorAnswer[] {
    const now = performance.now();
    const coordinator = providerOnly ? this.#private : this.#shared;
    return questions.map((question) => coordinator.answer(session, question, now, this.#settled(question.blob, now)));
  }

  #settled(blob: string, now: number): boolean {
    const changedAt = Math.max(this.#options.peers.changedAt(), this.#startedAt);
    return this.#settleDelay.isSettled(blob.slice(0, SHARD_DIGITS), now, changedAt);
  }

  /**
   * Asks the coordinator of a blob. If it is unreachable, asks the next one; this node is the last. Any nearby node may
   * coordinate a public blob, or claim to hold it, so this node itself decides from which nodes it accepts bytes. Never
   * rejects.
   * @param providerOnly true if only nodes of the provider coordinate this key and send its bytes
   */
  async ask(question: CoordinatorQuestion, providerOnly: boolean): Promise<CoordinatorAnswer> {
    const answer = await this.#answerTo(question, providerOnly);
    if (answer.kind !== 'peer') return answer;
    const { peers, access } = this.#options;
    const peer = peers.others().find(({ session }) => session === answer.session);
    // The coordinator may know a node that gossip has not announced here yet.
    if (peer === undefined) return { kind: 'wait' };
    if (providerOnly ? access.isSameProvider(peer) : access.isNear(peer)) return answer;
    this.senders.failed(answer.session, performance.now());
    return { kind: 'wait' };
  }

  /**
   * Call if the pull waited for the maximum time, and no byte arrived. If the coordinator belongs to another provider,
   * it could cause that forever, so a different coordinator is asked for a while.
   */
  onWaitTimeout(blob: string, providerOnly: boolean): void {
    const self = this.#options.peers.self()?.session;
    if (self === undefined) return;
    const coordinator = this.#coordinatorOf(blob, self, providerOnly);
    if (!this.#providerPeers().has(coordinator) && coordinator !== self)
      this.#coordinators.failed(coordinator, performance.now());
  }

  async #answerTo(question: CoordinatorQuestion, providerOnly: boolean): Promise<CoordinatorAnswer> {
    const self = this.#options.peers.self()?.session;
    if (self === undefined) return { kind: question.role === 'wants' ? 'read' : 'wait' };
    for (;;) {
      const coordinator = this.#coordinatorOf(question.blob, self, providerOnly);
      if (coordinator === self) return this.answer(self, [question], providerOnly)[0] ?? { kind: 'wait' };
      try {
        const [answer] = await this.#options.client.coordinate(
          coordinator,
          [question],
          providerOnly,
          this.#stop.signal,
        );
        return answer ?? { kind: 'wait' };
      } catch (error) {
        if (asWeightsError(error).code === 'stopped') return { kind: 'wait' };
        this.#coordinators.failed(coordinator, performance.now());
      }
    }
  }

  #coordinatorOf(blob: string, self: string, providerOnly: boolean): string {
    const avoided = new Set(this.#coordinators.blocked(performance.now()));
    const sessions = [...(providerOnly ? this.#providerPeers() : this.#nearPeers())].filter(
      (session) => !avoided.has(session),
    );
    return chooseCoordinator(blob.slice(0, SHARD_DIGITS), [self, ...sessions]) ?? self;
  }

  async #announceWhenDue(): Promise<void> {
    const now = performance.now();
    const changedAt = this.#options.peers.changedAt();
    if (this.#announced > changedAt && now - this.#announced < ANNOUNCE_MS) return;
    this.#announced = now;
    await this.announce('holds', await this.#options.held());
  }

  /**
   * Reports to the coordinators that this node holds these blobs, or no longer holds them. Never rejects; an
   * unreachable coordinator gets the next report.
   */
  async announce(role: 'holds' | 'drops', blobs: readonly string[]): Promise<void> {
    const shared = blobs.filter((blob) => this.#options.access.isPublic(blob));
    const listed = new Set(shared);
    const others = blobs.filter((blob) => !listed.has(blob));
    await Promise.all([this.#announce(role, shared, false), this.#announce(role, others, true)]);
  }

  async #announce(role: 'holds' | 'drops', blobs: readonly string[], providerOnly: boolean): Promise<void> {
    const self = this.#options.peers.self()?.session;
    if (self === undefined) return;
    const rows = new Map<string, CoordinatorQuestion[]>();
    for (const blob of blobs) {
      const coordinator = this.#coordinatorOf(blob, self, providerOnly);
      rows.set(coordinator, [...(rows.get(coordinator) ?? []), { blob, role }]);
    }
    await Promise.all(
      [...rows].map(async ([coordinator, questions]) => {
        if (coordinator === self) return void this.answer(self, questions, providerOnly);
        try {
          for (let at = 0; at < questions.length; at += ROWS_MAX) {
            const some = questions.slice(at, at + ROWS_MAX);
            await this.#options.client.coordinate(coordinator, some, providerOnly, this.#stop.signal);
          }
        } catch {
          this.#coordinators.failed(coordinator, performance.now());
        }
      }),
    );
  }
}

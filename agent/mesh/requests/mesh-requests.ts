import type { AttemptBody, AttemptRequest } from '../../../shared/attempts/attempt-request.ts';
import { DeadlineTicker } from '../../../shared/attempts/deadline-ticker.ts';
import type { PeerEvidence } from '../../../shared/routing/hang/hang-detector.ts';
import type { EngineLoad } from '../../../shared/routing/node-load.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { lostCreditText } from '../../../shared/wire/lost-credit.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';
import { waitClock } from '../../wait-clock.ts';
import type { AttemptReader } from './attempt-reader.ts';
import { ChannelAttempts, type ChannelAttemptsHost } from './channel-attempts.ts';
import { type MemoryChannel, memoryChannel } from './memory-channel.ts';
import { PeerAttempts, type PeerAttemptsOptions } from './peer-attempts.ts';
import type { ChannelSource, RequestChannel, RequestChannelEvents, StreamFrame } from './request-channel.ts';

const TICK_MS = 250;

/** Evidence of a node that was not asked. */
const NOT_ASKED: PeerEvidence = { silentMs: 0, answeredAgoMs: undefined, suspected: false, times: {} };

interface MeshRequestsOptions extends Omit<PeerAttemptsOptions, 'now'> {
  channels: ChannelSource;
  /** Called if a session has a channel and did not acknowledge an attempt in time. */
  onSilent(session: string): void;
  /** Called with the load of a session that got requests. */
  onLoad?(session: string, load: EngineLoad): void;
  /**
   * Called if a session's engine counts as hanging, so that it gets no requests for `pauseMs`; undefined: the engine
   * answers again.
   */
  onHang?(session: string, pauseMs: number | undefined): void;
  /** Stores the usage of attempts. The nodes that reported it forget it after this returns. */
  onUsage(records: UsageRecord[]): void;
}

/**
 * The requests of one agent on the mesh: those that it sends to other agents, and those that it serves. Both directions
 * share a channel; a stream's number shows which end opened it.
 */
export class MeshRequests implements RequestChannelEvents {
  readonly serving: PeerAttempts;
  readonly #options: MeshRequestsOptions;
  readonly #host: ChannelAttemptsHost;
  readonly #outbounds = new Map<string, ChannelAttempts>();
  /**
   * Channels to our own engine: under our current session, and under former sessions that still have reports to
   * deliver.
   */
  readonly #own = new Map<string, MemoryChannel>();
  #streams = 0;
  #ticking: NodeJS.Timeout | undefined;
  readonly #rounds = new DeadlineTicker(TICK_MS);

  constructor(options: MeshRequestsOptions) {
    this.#options = options;
    const now = () => performance.now();
    const patientNow = () => waitClock.now();
    this.serving = new PeerAttempts({ ...options, now });
    this.#host = {
      channels: {
        channelTo: (session) => this.#channelTo(session),
        stalled: (session) => session !== options.own() && (options.channels.stalled?.(session) ?? false),
      },
      now,
      patientNow,
      nextStream: (dialled) => 2 * ++this.#streams + (dialled ? 1 : 0),
      onSilent: (session) => options.onSilent(session),
      onLoad: (session, { running, waiting, kvUse }) =>
        options.onLoad?.(session, { running, waiting, ...(kvUse === undefined ? {} : { kvUse }) }),
      compare: (peer) => this.#compare(peer),
      onHang: (session, pauseMs) => options.onHang?.(session, pauseMs),
    };
  }

  /**
   * Compares the peer with other peers that were asked for the same model. If there are none, compares it with a node
   * that was not asked. Such a node exists, because a request is moved to another node only if there is one.
   */
  #compare(peer: ChannelAttempts): void {
    const others = [...this.#outbounds.values()].filter((other) => other !== peer && other.isLike(peer));
    peer.judge(others.length === 0 ? [NOT_ASKED] : others.map((other) => other.asPeer()));
  }

  open(): void {
    this.#ticking ??= setInterval(() => this.#tick(), TICK_MS);
  }

  /** Starts an attempt at `session`, over the open channel or a new one. */
  ask(session: string, request: AttemptRequest, body: AttemptBody): AttemptReader {
    return this.#peer(session).ask(request, body);
  }

  #channelTo(session: string): Promise<RequestChannel> {
    if (session !== this.#options.own()) return this.#options.channels.channelTo(session);
    const end = { session, provider: '' };
    const pair = memoryChannel({ ...end, events: this.#peer(session) }, { ...end, events: this.serving });
    this.#own.set(session, pair);
    return Promise.resolve(pair.near);
  }

  /**
   * Returns or creates the session's object. There is one for each session that has a channel, an open attempt or
   * unsettled usage.
   */
  #peer(session: string): ChannelAttempts {
    const known = this.#outbounds.get(session);
    if (known !== undefined) return known;
    const peer = new ChannelAttempts(session, this.#host);
    this.#outbounds.set(session, peer);
    return peer;
  }

  /** Number of this agent's attempts that run at other agents. */
  get askedElsewhere(): number {
    let open = 0;
    for (const [session, peer] of this.#outbounds) if (!this.#own.has(session)) open += peer.openCount;
    return open;
  }

  isUsing(session: string): boolean {
    return (this.#outbounds.get(session)?.busy ?? false) || this.serving.isServing(session);
  }

  onChannel(channel: RequestChannel): void {
    this.serving.onChannel(channel);
    this.#peer(channel.session).onChannel(channel);
  }

  onChannelClosed(channel: RequestChannel): void {
    this.serving.onChannelClosed(channel);
    this.#outbounds.get(channel.session)?.onChannelClosed(channel);
  }

  onFrame(channel: RequestChannel, frame: StreamFrame): void {
    if (frame.type !== 'load' && isForServing(channel, frame)) this.serving.onFrame(channel, frame);
    else this.#peer(channel.session).onFrame(channel, frame);
  }

  onMessageEnd(channel: RequestChannel): void {
    this.serving.onMessageEnd(channel);
    this.#outbounds.get(channel.session)?.onMessageEnd(channel);
  }

  #tick(): void {
    const now = performance.now();
    const judges = this.#rounds.judges(now);
    this.serving.tick(waitClock.now());
    for (const [session, peer] of this.#outbounds) {
      if (judges) peer.tick(waitClock.now());
      this.#settle(peer, now);
      const lost = this.isUsing(session) ? 0 : peer.reclaim();
      if (lost !== 0) this.#options.log(lostCreditText(session, lost));
      if (peer.idle) this.#outbounds.delete(session);
    }
    this.#leaveFormer();
  }

  #leaveFormer(): void {
    for (const [session, pair] of this.#own) {
      if (session === this.#options.own() || this.#outbounds.get(session)?.busy) continue;
      this.#own.delete(session);
      pair.close();
    }
  }

  #settle(peer: ChannelAttempts, now: number, last = false): void {
    const { records, streams } = peer.settle(now, last);
    // Computes dates from the records' ages. After a correction of the clock a stored date would be wrong.
    const dated = records.map((record) => ({ ...record, at: Math.round(Date.now() - (now - record.at)) }));
    if (dated.length > 0) this.#options.onUsage(dated);
    peer.forget(streams);
  }

  /** Ends all attempts in both directions. Idempotent. */
  async close(): Promise<void> {
    clearInterval(this.#ticking);
    for (const peer of this.#outbounds.values()) {
      peer.close();
      this.#settle(peer, performance.now(), true);
    }
    await this.serving.close();
  }
}

/**
 * True for frames of streams that the other end opened, and for frames about them.
 * @throws WireError for an attempt with a stream number of this end's half
 */
function isForServing(channel: RequestChannel, frame: Exclude<StreamFrame, { type: 'load' }>): boolean {
  if (frame.type === 'settled') return true;
  if (frame.type === 'report') return false; // a named report may carry the stream number of a former channel
  const ours = (frame.stream % 2 === 1) === channel.dialled;
  if (frame.type === 'open' && ours) throw new WireError('bad_state', `the peer may not open stream ${frame.stream}`);
  return !ours;
}

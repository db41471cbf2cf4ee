/** One session of this agent: its ticket, its record, and the tunnels that carry its name. It only ever moves on; what comes after it is another session. */
import type { Signer } from '../../shared/lattice/crypto.ts';
import { encodePayload } from '../../shared/lattice/payload.ts';
import { signRecord } from '../../shared/lattice/record.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { type EntryUpdate, encodeUpdate } from '../../shared/lattice/update.ts';
import { nodeCrypto } from '../host/crypto.ts';
import { identityOf } from '../tunnel/identity.ts';
import type { LogTailOptions } from '../tunnel/log-tail.ts';
import type { EngineTarget, Refusal, Tunnel, TunnelOptions } from '../tunnel/types.ts';
import { type GatewayStatus, Gateways } from './gateways.ts';
import { type NodeWord, payloadOf, type RecordChange, RecordKeeper } from './record.ts';
import { within } from './wait.ts';

export interface SessionOptions {
  ticket: Ticket;
  key: Signer;
  gateways: readonly URL[];
  /** As it joins. */
  first: NodeWord;
  openTunnel(options: TunnelOptions): Tunnel;
  leaveLogTail(asked: Pick<LogTailOptions, 'gateways' | 'ticket' | 'key' | 'tail' | 'signal'>): Promise<void>;
  engine(): EngineTarget | undefined;
  log(line: string): void;
  /** No gateway will have this agent. */
  onRefused(refusal: Refusal): void;
  /** Every gateway that can be asked says that this session has ended: evicted, or its ticket counts no more. */
  onOver(why: string): void;
}

/** LEFT is acknowledged within a round trip; a gateway that is away does not hold up the end of a job. */
const LEFT_WAIT_MS = 2000;

export class Session {
  readonly ticket: Ticket;
  readonly key: Signer;
  readonly #keeper: RecordKeeper;
  readonly #gateways: Gateways;
  readonly #leaveLogTail: SessionOptions['leaveLogTail'];
  #signed: { record: NodeWord; update: EntryUpdate } | undefined;
  #leaving: Promise<void> | undefined;

  constructor(options: SessionOptions) {
    const { ticket, key, gateways, first, openTunnel, engine, log, onRefused, onOver } = options;
    this.ticket = ticket;
    this.key = key;
    this.#leaveLogTail = options.leaveLogTail;
    this.#keeper = new RecordKeeper(first, () => this.#gateways.publish(), log);
    this.#gateways = new Gateways({
      urls: gateways,
      openTunnel,
      shared: {
        ticket: ticket.bytes,
        identity: identityOf(ticket, key),
        update: () => encodeUpdate(this.#update()),
        engine,
      },
      log,
      onAllRefused: onRefused,
      onOver,
    });
  }

  get id(): string {
    return this.ticket.session;
  }

  get record(): NodeWord {
    return this.#keeper.record;
  }

  get inFlight(): number {
    return this.#gateways.inFlight;
  }

  gatewayStatus(): GatewayStatus[] {
    return this.#gateways.status();
  }

  open(): void {
    this.#gateways.open();
  }

  /** Resolves when a gateway has this session's record for the first time, which is when it can be routed to. */
  get known(): Promise<void> {
    return this.#gateways.known;
  }

  change(change: RecordChange): void {
    this.#keeper.change(change);
  }

  /** The newest record, signed once however many are told; with all that a stranger needs to believe it. */
  #update(): EntryUpdate {
    const { record } = this.#keeper;
    if (this.#signed?.record === record) return this.#signed.update;
    const payload = encodePayload(payloadOf(record));
    const { state, version } = record;
    const update: EntryUpdate = {
      kind: 'entry',
      ticket: this.ticket.bytes,
      record: signRecord({ session: this.id, state, version, payload }, this.key, nodeCrypto),
      ...(state === 'LEFT' ? {} : { payload }),
    };
    this.#signed = { record, update };
    return update;
  }

  /** The engine's last words, for whoever looks for the node's end. */
  leaveLogTail(tail: Uint8Array, signal: AbortSignal): Promise<void> {
    const { ticket, key } = this;
    return this.#leaveLogTail({ gateways: this.#gateways.connected, ticket, key, tail, signal });
  }

  /** New openings are refused; resolves when nothing runs any more. */
  drain(): Promise<void> {
    return this.#gateways.drain();
  }

  /** Requests that the engine will never answer go back to the gateways, for other nodes. */
  giveUp(): void {
    void this.#gateways.drain();
    this.#gateways.giveUp();
  }

  /** LEFT, acknowledged or 2 s later, and the sockets closed. Idempotent; never rejects. */
  leave(): Promise<void> {
    this.#leaving ??= (async () => {
      this.#keeper.change({ state: 'LEFT' });
      await within(LEFT_WAIT_MS, this.#keeper.announced);
      await this.#gateways.close();
    })();
    return this.#leaving;
  }

  /** Without a word: nobody listens any more. */
  close(): Promise<void> {
    this.#leaving ??= this.#gateways.close();
    return this.#leaving;
  }
}

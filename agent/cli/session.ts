/** One session of this agent: its key pair, its record, and the tunnels that carry its name. It only ever moves on; what comes after it is another session. */
import type { NodeRecord } from '../../shared/lattice/node.ts';
import type { EngineTarget, Identity, Refusal, Tunnel, TunnelOptions } from '../tunnel/types.ts';
import { type GatewayStatus, Gateways } from './gateways.ts';
import { type RecordChange, RecordKeeper } from './record.ts';
import { within } from './wait.ts';

export interface SessionOptions {
  identity: Identity;
  token: string;
  cluster: string | undefined;
  gateways: readonly URL[];
  /** As it joins. */
  first: NodeRecord;
  openTunnel(options: TunnelOptions): Tunnel;
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
  readonly id: string;
  readonly #keeper: RecordKeeper;
  readonly #gateways: Gateways;
  #leaving: Promise<void> | undefined;

  constructor(options: SessionOptions) {
    const { identity, token, cluster, gateways, first, openTunnel, engine, log, onRefused, onOver } = options;
    this.id = identity.session;
    this.#keeper = new RecordKeeper(first, () => this.#gateways.publish(), log);
    this.#gateways = new Gateways({
      urls: gateways,
      openTunnel,
      shared: {
        token,
        identity,
        record: () => this.#keeper.record,
        engine,
        ...(cluster === undefined ? {} : { cluster }),
      },
      log,
      onAllRefused: onRefused,
      onOver,
    });
  }

  get record(): NodeRecord {
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

  /** New openings are refused; resolves when nothing runs any more. */
  drain(): Promise<void> {
    return this.#gateways.drain();
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

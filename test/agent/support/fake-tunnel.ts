/** A mock of the tunnel to a gateway: it connects immediately, keeps what is published, and carries no requests. */
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import type { Tunnel, TunnelOptions } from '../../../agent/tunnel/tunnel-types.ts';
import { decodePayload, type NodePayload } from '../../../shared/lattice/node-payload.ts';
import type { SessionState } from '../../../shared/lattice/node-record.ts';
import { decodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { decodeRecord, verifyRecord } from '../../../shared/lattice/signed-record.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { ProbeVerdict } from '../../../shared/wire/frames.ts';

/** What a gateway reads in a record; a session that LEFT publishes nothing else. */
export interface Published extends NodePayload {
  state: SessionState;
  version: number;
  /** Size of the payload. */
  bytes: number;
}

export class FakeTunnel implements Tunnel {
  readonly options: TunnelOptions;
  readonly published: Published[] = [];
  /** `open`, `publish DOWN`, `drain`, `close`: in order of arrival. */
  readonly calls: string[] = [];
  connected = false;
  readonly attempts = { give: () => undefined };
  #inFlight = 0;
  #drained: (() => void)[] = [];
  readonly #wake: () => void;

  constructor(options: TunnelOptions, wake: () => void = () => {}) {
    this.options = options;
    this.#wake = wake;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Pretends that a gateway has this many requests running. */
  set inFlight(count: number) {
    this.#inFlight = count;
    if (count === 0) for (const done of this.#drained.splice(0)) done();
    this.#wake();
  }

  get states(): string[] {
    return this.published.map(({ state }) => state).filter((state, i, all) => state !== all[i - 1]);
  }

  get latest(): Published | undefined {
    return this.published.at(-1);
  }

  open(): void {
    this.calls.push('open');
    this.connected = true;
    this.options.onConnected?.('gw:fake');
    neverRejects(this.publish());
  }

  async publish(): Promise<void> {
    const record = this.#read();
    this.calls.push(`publish ${record.state}`);
    this.published.push(record);
    this.options.onRecorded?.();
    this.#wake();
  }

  drain(): Promise<void> {
    this.calls.push('drain');
    this.#wake();
    return this.#inFlight === 0 ? Promise.resolve() : new Promise((resolve) => this.#drained.push(resolve));
  }

  giveUp(): void {
    this.calls.push('giveUp');
    this.inFlight = 0;
  }

  async close(): Promise<void> {
    this.calls.push('close');
    this.connected = false;
    this.#wake();
  }

  async probe(): Promise<ProbeVerdict> {
    return 'unknown';
  }

  /** Reads the record like a replica. @throws Error if the session did not sign it */
  #read(): Published {
    const update = decodeUpdate(this.options.update());
    if (update.kind !== 'entry' || update.record === undefined) throw new Error('no record was published');
    const record = decodeRecord(update.record, nodeCrypto);
    const { state, version } = verifyRecord(record, this.options.identity.publicKey, nodeCrypto);
    const payload = update.payload === undefined ? this.published.at(-1) : decodePayload(update.payload);
    if (payload === undefined) throw new Error('a payload that cannot be read');
    return { ...payload, state, version, bytes: update.payload?.length ?? 0 };
  }
}

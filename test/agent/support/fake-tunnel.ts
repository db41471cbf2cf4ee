/** Stands in for the tunnel to a gateway: it connects at once, keeps what is published, and carries no requests. */
import { randomBytes } from 'node:crypto';
import type { Identity, Tunnel, TunnelOptions } from '../../../agent/tunnel/types.ts';
import type { NodeRecord } from '../../../shared/lattice/node.ts';

export class FakeTunnel implements Tunnel {
  readonly options: TunnelOptions;
  readonly published: NodeRecord[] = [];
  /** `open`, `publish DOWN`, `drain`, `close`: in the order they came. */
  readonly calls: string[] = [];
  connected = false;
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

  get latest(): NodeRecord | undefined {
    return this.published.at(-1);
  }

  open(): void {
    this.calls.push('open');
    this.connected = true;
    this.options.onConnected?.();
    void this.publish();
  }

  async publish(): Promise<void> {
    const record = this.options.record();
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

  async close(): Promise<void> {
    this.calls.push('close');
    this.connected = false;
    this.#wake();
  }
}

/** No key pair: nothing is signed towards a fake. */
export function fakeIdentity(): Identity {
  const letters = 'abcdefghijklmnopqrstuvwxyz234567';
  const session = [...randomBytes(26)].map((byte) => letters[byte % 32]).join('');
  return { session, publicKey: new Uint8Array(32), sign: () => new Uint8Array(64) };
}

/** The node's own record: the one place that changes it. */
import {
  type Lifecycle,
  lifecycleRank,
  NODE_RECORD_MAX_BYTES,
  type NodeRecord,
  type ServedModel,
} from '../../shared/lattice/node.ts';

export type RecordChange = Partial<Omit<NodeRecord, 'version' | 'agent_version'>>;

export class RecordKeeper {
  #record: NodeRecord;
  readonly #announce: () => Promise<void>;
  #announced: Promise<void> = Promise.resolve();
  readonly #log: (line: string) => void;

  constructor(first: NodeRecord, announce: () => Promise<void>, log: (line: string) => void) {
    this.#announce = announce;
    this.#log = log;
    this.#record = this.#fitted(first);
  }

  get record(): NodeRecord {
    return this.#record;
  }

  /** Resolves when the newest record has been announced. */
  get announced(): Promise<void> {
    return this.#announced;
  }

  /** Applies and announces a change; one that changes nothing is not announced. The state never moves back. */
  change(change: RecordChange): void {
    const next = { ...this.#record, ...change, state: later(this.#record.state, change.state) };
    const fitted = this.#fitted({ ...next, version: this.#record.version + 1 });
    if (JSON.stringify({ ...fitted, version: 0 }) === JSON.stringify({ ...this.#record, version: 0 })) return;
    this.#record = fitted;
    this.#announced = this.#announce();
  }

  /** A gateway refuses a record above its bound, and with it the node: better a list of models with its end missing. */
  #fitted(record: NodeRecord): NodeRecord {
    const models: ServedModel[] = [...record.models];
    let gpus = record.hardware.gpus;
    const assembled = () => ({ ...record, models, hardware: { ...record.hardware, gpus } });
    while (models.length > 1 && bytesOf(assembled()) > NODE_RECORD_MAX_BYTES) models.pop();
    // 16 KiB hold some 190 devices by their full names, more by their classes alone.
    if (bytesOf(assembled()) > NODE_RECORD_MAX_BYTES) gpus = gpus.map((gpu) => ({ ...gpu, name: gpu.class }));
    while (gpus.length > 0 && bytesOf(assembled()) > NODE_RECORD_MAX_BYTES) gpus = gpus.slice(0, -16);
    if (models.length < record.models.length)
      this.#log(`only ${models.length} of ${record.models.length} models fit into the registry's record`);
    if (gpus.length < record.hardware.gpus.length)
      this.#log(`only ${gpus.length} of ${record.hardware.gpus.length} GPUs fit into the registry's record`);
    return assembled();
  }
}

function later(now: Lifecycle, next: Lifecycle | undefined): Lifecycle {
  return next !== undefined && lifecycleRank(next) > lifecycleRank(now) ? next : now;
}

function bytesOf(record: NodeRecord): number {
  return Buffer.byteLength(JSON.stringify(record));
}

/** The registry record of one session. Only RecordKeeper changes it. */

import {
  type GpuGroup,
  type NodePayload,
  nodePayloadSchema,
  PAYLOAD_MAX_BYTES,
} from '../../../shared/lattice/node-payload.ts';
import { type ServedModel, type SessionState, sessionStateRank } from '../../../shared/lattice/node-record.ts';

/** Facts about the node that each session of an agent publishes. */
export type NodeFacts = NodePayload;

/** The content of one session's registry record: the facts and the state. */
export interface SessionRecord extends NodePayload {
  state: SessionState;
  /** Grows with each change. */
  version: number;
}

export type RecordChange = Partial<Omit<SessionRecord, 'version' | 'agent_version'>>;

export class RecordKeeper {
  #record: SessionRecord;
  readonly #announce: () => Promise<void>;
  #announced: Promise<void> = Promise.resolve();
  readonly #log: (line: string) => void;
  #unreadable = '';

  constructor(first: SessionRecord, announce: () => Promise<void>, log: (line: string) => void) {
    this.#announce = announce;
    this.#log = log;
    this.#record = this.#checked(this.#fitted(first));
  }

  get record(): SessionRecord {
    return this.#record;
  }

  /** Resolves when the newest record has been announced. */
  get announced(): Promise<void> {
    return this.#announced;
  }

  /**
   * Applies a change and announces the record. A change without effect is not announced. The state never moves back.
   */
  change(change: RecordChange): void {
    const next = { ...this.#record, ...change, state: later(this.#record.state, change.state) };
    const fitted = this.#checked(this.#fitted({ ...next, version: this.#record.version + 1 }));
    if (JSON.stringify({ ...fitted, version: 0 }) === JSON.stringify({ ...this.#record, version: 0 })) return;
    this.#record = fitted;
    this.#announced = this.#announce();
  }

  /**
   * Logs if replicas cannot read the record. They store such a record, but do not show the node, so that no request
   * would arrive and no error would appear.
   */
  #checked(record: SessionRecord): SessionRecord {
    const [issue] = nodePayloadSchema.safeParse(payloadOf(record)).error?.issues ?? [];
    const why = issue === undefined ? '' : `${issue.path.join('.')}: ${issue.message}`;
    if (why !== '' && why !== this.#unreadable)
      this.#log(`no gateway can parse this node's registry record, so none shows it: ${why}`);
    this.#unreadable = why;
    return record;
  }

  /**
   * Shortens a payload that is too long, because a replica refuses it, and with it the node. Drops facts about the last
   * models that routing does not need, then the last models, then the names of GPUs, then GPUs.
   */
  #fitted(record: SessionRecord): SessionRecord {
    const models = [...record.models];
    let gpus = record.hardware.gpus;
    const assembled = () => ({ ...record, models, hardware: { ...record.hardware, gpus } });
    for (let at = models.length - 1; at >= 0 && bytesOf(assembled()) > PAYLOAD_MAX_BYTES; at--)
      models.splice(at, 1, ...models.slice(at, at + 1).map(routedFacts));
    while (models.length > 1 && bytesOf(assembled()) > PAYLOAD_MAX_BYTES) models.pop();
    if (bytesOf(assembled()) > PAYLOAD_MAX_BYTES) gpus = gpus.map((gpu) => ({ ...gpu, name: gpu.class }));
    while (gpus.length > 0 && bytesOf(assembled()) > PAYLOAD_MAX_BYTES) gpus = gpus.slice(0, -1);
    // The payload is still too long only if names consist of characters that JSON encodes in six bytes.
    if (bytesOf(assembled()) > PAYLOAD_MAX_BYTES) return this.#bare(assembled());
    if (models.length < record.models.length)
      this.#log(`only ${models.length} of ${record.models.length} models fit into the registry's record`);
    if (gpus.length < record.hardware.gpus.length)
      this.#log(`only ${devices(gpus)} of ${devices(record.hardware.gpus)} GPUs fit into the registry's record`);
    return assembled();
  }

  /** Drops labels, host and job, so that the node is still served. */
  #bare(record: SessionRecord): SessionRecord {
    this.#log('the labels, the host and the job do not fit into the registry’s record');
    const { host: _host, job: _job, ...rest } = record;
    return { ...rest, labels: {} };
  }
}

/** The model without the facts that only people and clients read. */
function routedFacts(model: ServedModel): ServedModel {
  const { id, state, context_length: context, quantization, engine, revision } = model;
  return {
    id,
    state,
    ...(context === undefined ? {} : { context_length: context }),
    ...(quantization === undefined ? {} : { quantization }),
    ...(engine === undefined ? {} : { engine }),
    ...(revision === undefined ? {} : { revision }),
  };
}

/** The payload that is sent with the signed record. */
export function payloadOf({ state: _state, version: _version, ...payload }: SessionRecord): NodePayload {
  return payload;
}

function later(now: SessionState, next: SessionState | undefined): SessionState {
  return next !== undefined && sessionStateRank(next) > sessionStateRank(now) ? next : now;
}

function bytesOf(record: SessionRecord): number {
  return Buffer.byteLength(JSON.stringify(payloadOf(record)));
}

function devices(gpus: readonly GpuGroup[]): number {
  return gpus.reduce((sum, { count }) => sum + count, 0);
}

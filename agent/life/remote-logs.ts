/** The part of this agent's logs that gateways may read: while the agent runs, and at its end. */
import { join } from 'node:path';
import { AGENT_LOG_MAX_BYTES, INSPECTED_LOG_MAX_BYTES, type Inspection } from '../../shared/deployment/order-reply.ts';
import { LOG_TAIL_MAX_BYTES } from '../../shared/wire/protocol-constants.ts';
import type { Engine } from '../engine/engine.ts';
import { LogTailBuffer } from '../engine/log-tail-buffer.ts';
import type { GpuUseReader } from '../host/gpu-utilization.ts';
import { archiveLogTail } from './archive-log-tail.ts';

interface RemoteLogsOptions {
  engine(): Pick<Engine, 'text'> | undefined;
  /** True if the provider lets gateways read logs. */
  allowed: boolean;
  /** True if this node has opened sealed requests. Its output may quote them. */
  sealed(): boolean;
  redact(text: string): string;
  /** Directory for logs of ended sessions; undefined: logs are not stored. */
  directory: string | undefined;
  log(line: string): void;
}

/** Maximum bytes of the agent's own log in the log that is uploaded to a gateway: one quarter. */
const OWN_AT_END_BYTES = LOG_TAIL_MAX_BYTES / 4;

export class RemoteLogs {
  readonly #options: RemoteLogsOptions;
  readonly #own = new LogTailBuffer(OWN_AT_END_BYTES);

  constructor(options: RemoteLogsOptions) {
    this.#options = options;
  }

  /** Adds a line of the agent's own log. */
  line(text: string): void {
    this.#own.push(Buffer.from(`${new Date().toISOString()} ${text}\n`));
  }

  /** Why no log is shown; undefined if it is shown. */
  get withheld(): 'forbidden' | 'sealed' | undefined {
    if (!this.#options.allowed) return 'forbidden';
    return this.#options.sealed() ? 'sealed' : undefined;
  }

  async inspect(gpuUse: GpuUseReader): Promise<Inspection> {
    const gpus = await gpuUse.read();
    const { withheld } = this;
    if (withheld !== undefined) return { kind: 'inspected', log: '', gpus, withheld };
    const log = this.#clean(this.#options.engine()?.text(INSPECTED_LOG_MAX_BYTES) ?? '', INSPECTED_LOG_MAX_BYTES);
    const own = this.#clean(this.#own.text(AGENT_LOG_MAX_BYTES), AGENT_LOG_MAX_BYTES);
    return { kind: 'inspected', log, gpus, agent_log: own };
  }

  /**
   * Call at the end of `session`. Returns the text that the caller should upload in `tail`; undefined: the log must not
   * be sent. `kept` resolves when the log is stored in the directory.
   */
  atEnd(session: string): { tail: Buffer | undefined; kept: Promise<void> } {
    const engine = this.#options.redact(
      wholeLines(this.#options.engine()?.text(LOG_TAIL_MAX_BYTES) ?? '', LOG_TAIL_MAX_BYTES),
    );
    const own = this.#options.redact(this.#own.text(OWN_AT_END_BYTES));
    const text = `${engine}${engine === '' || engine.endsWith('\n') ? '' : '\n'}--- the agent:\n${own}`;
    const tail = lastBytes(text, LOG_TAIL_MAX_BYTES);
    const kept = this.#keep(session, tail);
    if (this.withheld === undefined) return { tail, kept };
    const why =
      this.withheld === 'sealed'
        ? 'this node decrypted sealed requests, and the log may quote them'
        : 'its provider does not allow it';
    this.#options.log(`the log is not sent to gateways: ${why}`);
    return { tail: undefined, kept };
  }

  async #keep(session: string, text: Buffer): Promise<void> {
    const { directory, log } = this.#options;
    if (directory === undefined) return;
    const trouble = await archiveLogTail(directory, session, text);
    if (trouble === undefined)
      log(`the log of session ${session} was saved to ${join(directory, `otela-${session}.log`)}`);
    else log(`the log of session ${session} cannot be saved in ${directory}: ${trouble}`);
  }

  #clean(text: string, maxBytes: number): string {
    const clean = this.#options.redact(wholeLines(text, maxBytes));
    return lastBytes(clean, maxBytes).toString('utf8');
  }
}

/**
 * Drops the incomplete first line of a text that was cut at `max` characters. Such a line may contain the end of a
 * secret.
 */
function wholeLines(text: string, max: number): string {
  return text.length < max ? text : text.slice(text.indexOf('\n') + 1);
}

function lastBytes(text: string, max: number): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return bytes;
  // Begin at the first byte of a character.
  let from = bytes.length - max;
  while (from < bytes.length && ((bytes[from] ?? 0) & 0xc0) === 0x80) from++;
  return bytes.subarray(from);
}

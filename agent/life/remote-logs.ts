/** What of its logs this agent shows to gateways, live and at its end. */
import { appendFileSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { AGENT_LOG_MAX_BYTES, INSPECTED_LOG_MAX_BYTES, type Inspected } from '../../shared/deployment/answer.ts';
import { LOG_TAIL_MAX_BYTES } from '../../shared/wire/limits.ts';
import type { Engine } from '../engine/engine.ts';
import { Tail } from '../engine/tail.ts';
import type { GpuUseReader } from '../host/gpu-use.ts';

interface RemoteLogsOptions {
  engine(): Pick<Engine, 'text'> | undefined;
  /** The provider lets gateways read logs. */
  allowed: boolean;
  /** This node opened sealed requests: what is printed may quote them. */
  sealed(): boolean;
  redact(text: string): string;
  /** Logs of sessions that have ended go there too; undefined: nowhere. */
  directory: string | undefined;
  log(line: string): void;
}

/** Of ended sessions, in the directory; the oldest go first. */
const FILES_MAX = 100;
const FILE = /^otela-[a-z0-9]{1,64}\.log$/;
/** One quarter of what is left with a gateway. */
const OWN_AT_END_BYTES = LOG_TAIL_MAX_BYTES / 4;

export class RemoteLogs {
  readonly #options: RemoteLogsOptions;
  readonly #own = new Tail(OWN_AT_END_BYTES);

  constructor(options: RemoteLogsOptions) {
    this.#options = options;
  }

  /** The agent said so. */
  line(text: string): void {
    this.#own.push(Buffer.from(`${new Date().toISOString()} ${text}\n`));
  }

  /** Why nothing of it is shown; undefined: it is. */
  get withheld(): 'forbidden' | 'sealed' | undefined {
    if (!this.#options.allowed) return 'forbidden';
    return this.#options.sealed() ? 'sealed' : undefined;
  }

  async inspect(gpuUse: GpuUseReader): Promise<Inspected> {
    const gpus = await gpuUse.read();
    const { withheld } = this;
    if (withheld !== undefined) return { kind: 'inspected', log: '', gpus, withheld };
    const log = this.#clean(this.#options.engine()?.text(INSPECTED_LOG_MAX_BYTES) ?? '', INSPECTED_LOG_MAX_BYTES);
    const own = this.#clean(this.#own.text(AGENT_LOG_MAX_BYTES), AGENT_LOG_MAX_BYTES);
    return { kind: 'inspected', log, gpus, agent_log: own };
  }

  /** At the end of `session`: into the directory, and what a gateway is to keep; undefined: nothing. */
  atEnd(session: string): Buffer | undefined {
    const engine = this.#options.redact(
      wholeLines(this.#options.engine()?.text(LOG_TAIL_MAX_BYTES) ?? '', LOG_TAIL_MAX_BYTES),
    );
    const own = this.#options.redact(this.#own.text(OWN_AT_END_BYTES));
    const text = `${engine}${engine === '' || engine.endsWith('\n') ? '' : '\n'}--- the agent:\n${own}`;
    this.#keep(session, text);
    if (this.withheld !== undefined) {
      const why =
        this.withheld === 'sealed'
          ? 'this node opened sealed requests, and it may quote them'
          : 'its provider keeps it';
      this.#options.log(`the log stays here: ${why}`);
      return undefined;
    }
    return lastBytes(text, LOG_TAIL_MAX_BYTES);
  }

  /** For its owner alone (0600). A full disk does not hold up the end of a job. */
  #keep(session: string, text: string): void {
    const { directory, log } = this.#options;
    if (directory === undefined) return;
    try {
      makeDirectory(resolve(directory));
      const path = join(directory, `otela-${session}.log`);
      writeFileSync(path, '', { mode: 0o600 });
      appendFileSync(path, lastBytes(text, LOG_TAIL_MAX_BYTES));
      const files = readdirSync(directory)
        .filter((name) => FILE.test(name))
        .map((name) => ({ name, at: statSync(join(directory, name)).mtimeMs }))
        .sort((a, b) => b.at - a.at);
      for (const { name } of files.slice(FILES_MAX)) rmSync(join(directory, name), { force: true });
      log(`its log is in ${path}`);
    } catch (error) {
      log(`its log cannot be kept in ${directory}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #clean(text: string, maxBytes: number): string {
    const clean = this.#options.redact(wholeLines(text, maxBytes));
    return lastBytes(clean, maxBytes).toString('utf8');
  }
}

/** Not by Node's `recursive`, which tries for ever where a file system (/proc, an automounter) says of a directory's child that it is not there. */
function makeDirectory(path: string): void {
  if (existsSync(path)) return;
  makeDirectory(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    // Another agent whose job ends at the same moment.
    if (!existsSync(path)) throw error;
  }
}

/** Of a text that was cut at `max` characters: a line whose beginning is missing may hold the end of a secret. */
function wholeLines(text: string, max: number): string {
  return text.length < max ? text : text.slice(text.indexOf('\n') + 1);
}

function lastBytes(text: string, max: number): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return bytes;
  // Not from the middle of a character.
  let from = bytes.length - max;
  while (from < bytes.length && ((bytes[from] ?? 0) & 0xc0) === 0x80) from++;
  return bytes.subarray(from);
}

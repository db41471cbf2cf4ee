/** The engine from the agent's view: a child process, a process that another program started, or none. */
import { connect } from 'node:net';
import type { Writable } from 'node:stream';
import type { EngineTarget } from './engine-address.ts';
import { type EngineHealth, UNKNOWN_HEALTH } from './engine-health.ts';
import { EngineProbe, type EngineProbeResult } from './engine-probe.ts';
import { type EngineExit, EngineProcess } from './engine-process.ts';
import { EngineWatch } from './engine-watch.ts';
import { FactReader } from './facts/fact-reader.ts';

interface EngineOptions {
  command: readonly string[] | undefined;
  /** Undefined if there is nothing to ask, for example for a rank of a multi-machine engine that serves no HTTP. */
  target: EngineTarget | undefined;
  env: Readonly<Record<string, string | undefined>>;
  stdout: Writable;
  stderr: Writable;
  log(line: string): void;
  /** Called with each line of the child's output, cut at 4 KiB. */
  onLine?(line: string): void;
  onHealth(health: EngineHealth): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
}

export class Engine {
  #target: EngineTarget | undefined;
  /** Settles when the child has ended; never settles without a child. */
  readonly exited: Promise<EngineExit>;
  readonly #child: EngineProcess | undefined;
  readonly #probe: EngineProbe | undefined;
  readonly #prefillProbes: readonly EngineProbe[] = [];
  readonly #watch: EngineWatch | undefined;
  #loggedUnnameable = false;
  readonly #facts: FactReader | undefined;

  constructor(options: EngineOptions) {
    const { command, target, env, log } = options;
    this.#target = target;
    this.#child = command ? new EngineProcess({ ...options, command }) : undefined;
    this.exited = this.#child?.exited ?? new Promise(() => {});
    if (!target) return;
    const probe = new EngineProbe(target);
    this.#probe = probe;
    const facts = new FactReader({ target, command, env, log, now: options.now, onChange: () => this.lookSoon() });
    this.#facts = facts;
    this.#prefillProbes = target.prefills?.map((one) => new EngineProbe(one)) ?? [];
    this.#watch = new EngineWatch({
      look: async () => {
        const result = await this.#probeEngine(probe);
        if (result.kind === 'refused' || result.kind === 'loading') facts.forget();
        if (result.kind !== 'models') return result;
        this.#logUnnameable(result.unnameable, log);
        facts.refresh(probe.listed);
        return { ...result, models: result.models.map((model) => ({ ...facts.of(model.id), ...model })) };
      },
      onChange: (health) => {
        // Only these engines have paths that differ.
        const engine = health.models.find((model) => model.engine === 'vllm' || model.engine === 'sglang')?.engine;
        this.#target = engine === undefined ? target : { ...target, engine };
        options.onHealth(health);
      },
      onWaiting: (waitedMs, trouble) => {
        const [line] = this.#child?.tail.lines(1) ?? [];
        const last = line === undefined ? '' : `; the engine's last line: ${line}`;
        log(`waiting for ${probe.url} for ${Math.round(waitedMs / 1000)} s: ${trouble}${last}`);
      },
      now: options.now,
    });
    this.#watch.open();
  }

  /** A decode engine serves only while one of its prefill engines answers. */
  async #probeEngine(probe: EngineProbe): Promise<EngineProbeResult> {
    const result = await probe.look();
    const [first] = this.#prefillProbes;
    if (first === undefined || result.kind !== 'models') return result;
    const looks = this.#prefillProbes.map((one) => one.look());
    // An unreachable prefill engine delays its probe for up to a minute. Meanwhile the decode engine is probed again.
    if (await anyServes(looks)) return result;
    const [prefill] = await Promise.all(looks);
    if (prefill === undefined || prefill.kind === 'models') return result;
    switch (prefill.kind) {
      case 'loading':
        return { kind: 'unknown', reason: 'the prefill engine is loading its model' };
      case 'refused':
        return { kind: 'refused', where: first.url };
      case 'unknown':
        return { kind: 'unknown', reason: `prefill engine: ${prefill.reason}` };
    }
  }

  /** Logged once, because the engine is probed every 3 s. */
  #logUnnameable(count: number, log: (line: string) => void): void {
    if (count === 0 || this.#loggedUnnameable) return;
    this.#loggedUnnameable = true;
    log(`ignored ${count} models of the engine: their names are empty or longer than 256 characters`);
  }

  get target(): EngineTarget | undefined {
    return this.#target;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get health(): EngineHealth {
    return this.#watch?.health ?? UNKNOWN_HEALTH;
  }

  /** How long the engine has been loading, in milliseconds; undefined if it is not loading. */
  get waitingMs(): number | undefined {
    return this.#watch?.waitingMs;
  }

  /** The last `maxBytes` of the engine's output, as plain text. */
  text(maxBytes: number): string {
    return this.#child?.tail.text(maxBytes) ?? '';
  }

  tail(): Buffer {
    return this.#child?.tail.bytes() ?? Buffer.alloc(0);
  }

  lastLines(count: number): string[] {
    return this.#child?.tail.lines(count) ?? [];
  }

  follow(listener: (chunk: Buffer) => void): () => void {
    return this.#child?.follow(listener) ?? (() => {});
  }

  /** Probes the engine soon, because a response contradicts its known health. */
  lookSoon(): void {
    this.#watch?.soon();
  }

  /** Resets the health as if the engine had never answered: the next engine at that address is a different one. */
  forget(): void {
    this.#watch?.forget();
  }

  /** Ends the probes. The last health stays known. */
  async unwatch(): Promise<void> {
    // Closing the probes ends the running look, for which the watch waits.
    const probes = [this.#probe, ...this.#prefillProbes];
    await Promise.all([this.#watch?.close(), ...probes.map((one) => one?.close())]);
    await this.#facts?.close();
  }

  async stop(graceMs: number, hurry: Promise<unknown>): Promise<void> {
    await Promise.all([this.unwatch(), this.#child?.stop(graceMs, hurry)]);
  }
}

/** Resolves with true as soon as one of the looks finds an engine that serves, or with false after the last look. */
function anyServes(looks: readonly Promise<EngineProbeResult>[]): Promise<boolean> {
  const serving = looks.map(async (look) => {
    const { kind } = await look;
    if (kind !== 'models') throw new Error(kind);
    return true;
  });
  return Promise.any(serving).catch(() => false);
}

/** Maximum wait. A listener on this machine answers within microseconds; a remote one takes longer. */
const OCCUPIED_WAIT_MS = 1000;

/**
 * True if another process already listens at the address of our engine. On a node that several jobs share, that process
 * may be another user's engine. The agent would take it for its own engine, and would send our users' prompts to it.
 */
export function isOccupied(target: EngineTarget): Promise<boolean> {
  const url = new URL(target.origin);
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  return new Promise((resolve) => {
    const socket = connect({ host: url.hostname.replace(/^\[|\]$/g, ''), port });
    const done = (occupied: boolean) => {
      socket.destroy();
      resolve(occupied);
    };
    socket.setTimeout(OCCUPIED_WAIT_MS, () => done(false));
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
  });
}

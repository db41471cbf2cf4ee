/** Reads facts about an engine's models from the engine, its command line and its checkpoint. */
import { networkInterfaces } from 'node:os';
import { cwd } from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { errorText } from '../../../shared/text/error-text.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { commandFacts } from '../declared-model-facts.ts';
import type { EngineTarget } from '../engine-address.ts';
import { type CheckpointSource, checkpointFacts, checkpointOf } from './checkpoint-facts.ts';
import {
  type EngineReport,
  llamacppReport,
  ollamaReport,
  sglangReport,
  tgiReport,
  versionOf,
  versionReport,
  vllmReport,
} from './engine-reports.ts';
import { FactClient } from './fact-client.ts';
import { type EngineProcessInfo, listeningEngine } from './listening-process.ts';
import type { ModelFacts } from './model-facts.ts';

/** A model as the engine lists it in `/v1/models`. */
export interface ListedModel {
  id: string;
  ownedBy?: string | undefined;
  /** In vLLM: the checkpoint's directory, or its name on the hub. */
  root?: string | undefined;
  /** In llama.cpp: facts about the model. */
  meta?: unknown;
}

type Env = Readonly<Record<string, string | undefined>>;

interface FactReaderOptions {
  target: EngineTarget;
  /** Undefined if this agent did not start the engine. */
  command: readonly string[] | undefined;
  env: Env;
  /** Called after a reading that found other facts than before. */
  onChange(): void;
  log(line: string): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Default: reads the files. */
  readCheckpoint?: typeof checkpointFacts;
  /** Maximum wait for files in one reading, in milliseconds; default FILES_MS. */
  filesMs?: number;
}

/**
 * Facts are read again after this time, because an engine may be restarted with other flags between two probes, and
 * Ollama chooses a model's context when it loads the model.
 */
const REFRESH_MS = 60_000;
/** Facts from files and from Ollama's `/api/show` are kept for this time, because their reading takes longer. */
const STORED_MS = 3_600_000;
/**
 * Maximum wait for files in one reading. A shared file system may hang. The files' facts are then used by the reading
 * after the file system has answered.
 */
const FILES_MS = 10_000;
/** After a reading that failed, the next one comes after this time. */
const RETRY_MS = 5_000;

/** The facts of each model by its id. */
type Facts = ReadonlyMap<string, ModelFacts>;

/** Facts that change only with the engine's start. */
interface StoredFacts {
  /** Until when they are used, by `now`. */
  until: number;
  /** The command line of the engine and its surroundings, if they are known. */
  process: EngineProcessInfo | undefined;
  /** By source. */
  checkpoints: Map<string, Promise<ModelFacts>>;
  /** Answers of Ollama's `/api/show`, by model. */
  shows: Map<string, unknown>;
  /** True if the engine is of no known kind, and is asked nothing. */
  unknownKind?: boolean;
}

export class FactReader {
  readonly #options: FactReaderOptions;
  readonly #client: FactClient;
  /** The engine's port on this machine; undefined for an engine elsewhere. */
  readonly #port: number | undefined;
  #facts: Facts = new Map();
  #stored: StoredFacts | undefined;
  /** The list for which facts were read. */
  #list = '';
  #due = 0;
  #reading = false;
  /** True if the engine did not serve during the reading. The result may then be that of another engine. */
  #outdated = false;
  #closed = false;
  #loggedFailure = false;

  constructor(options: FactReaderOptions) {
    this.#options = options;
    this.#client = new FactClient(options.target);
    this.#port = localPort(options.target);
  }

  /** The facts that are known about a model. The engine's own list takes precedence over them. */
  of(id: string): ModelFacts {
    return this.#facts.get(id) ?? {};
  }

  /**
   * Call when a probe found the engine ready. Starts a reading if one is due. No probe waits for it, because a shared
   * file system may hang.
   */
  refresh(models: readonly ListedModel[]): void {
    const list = JSON.stringify(models.map(({ id, ownedBy, root }) => [id, ownedBy, root]));
    if (this.#reading || (list === this.#list && this.#options.now() < this.#due)) return;
    if (list !== this.#list) this.#stored = undefined;
    this.#list = list;
    this.#reading = true;
    this.#outdated = false;
    neverRejects(this.#read(models));
  }

  /** Call when the engine does not serve: the next engine at that address may be a different one. */
  forget(): void {
    this.#facts = new Map();
    this.#due = 0;
    this.#outdated = true;
    this.#stored = undefined;
  }

  async #read(models: readonly ListedModel[]): Promise<void> {
    const { now, onChange, log } = this.#options;
    try {
      const before = JSON.stringify([...this.#facts]);
      this.#facts = await this.read(models);
      this.#due = this.#outdated ? 0 : now() + REFRESH_MS;
      if (JSON.stringify([...this.#facts]) !== before) onChange();
    } catch (error) {
      // The facts that are known stay, because a busy engine may not answer for a while.
      this.#due = now() + RETRY_MS;
      if (!this.#loggedFailure && !this.#closed)
        log(`cannot read facts about the engine's models yet: ${errorText(error)}`);
      this.#loggedFailure = true;
    } finally {
      this.#reading = false;
    }
  }

  /** Reads the facts of `models`. @throws Error if the engine does not answer */
  async read(models: readonly ListedModel[]): Promise<Facts> {
    const stored = await this.#storedFacts();
    const { command, env, directory } = stored.process ?? {
      command: undefined,
      env: this.#options.env,
      directory: undefined,
    };
    const declared = commandFacts(command);
    const reports = await this.#reports(models, stored);
    const facts = new Map<string, ModelFacts>();
    for (const model of models) {
      const report = reports.get(model.id);
      const source = checkpointOf(command, env, directory, model.id);
      const from = source ?? (this.#port === undefined ? undefined : reportedSource(model, report, env));
      const ofFile = from === undefined ? {} : await this.#ofCheckpoint(from, stored.checkpoints);
      facts.set(model.id, { ...ofFile, ...declared, ...report?.facts });
    }
    return facts;
  }

  async #storedFacts(): Promise<StoredFacts> {
    const { command, env, now } = this.#options;
    if (this.#stored !== undefined && now() < this.#stored.until) return this.#stored;
    const process = command
      ? { command: [...command], env, directory: cwd() }
      : this.#port === undefined
        ? undefined
        : await listeningEngine(this.#port);
    this.#stored = { until: now() + STORED_MS, process, checkpoints: new Map(), shows: new Map() };
    return this.#stored;
  }

  #ofCheckpoint(source: CheckpointSource, known: Map<string, Promise<ModelFacts>>): Promise<ModelFacts> {
    const { readCheckpoint = checkpointFacts, filesMs = FILES_MS } = this.#options;
    const key = JSON.stringify([source.path, source.unchanged]);
    const facts = known.get(key) ?? readCheckpoint(source);
    known.set(key, facts);
    return Promise.race([facts, delay(filesMs, {}, { ref: false })]);
  }

  /** Asks as the kind of engine requires. An engine that is not known reports nothing. */
  async #reports(models: readonly ListedModel[], stored: StoredFacts): Promise<ReadonlyMap<string, EngineReport>> {
    const [first] = models;
    const ask = this.#client;
    const { metricsPath = '/metrics' } = this.#options.target;
    const ofAll = (report: EngineReport | undefined) =>
      new Map(report === undefined ? [] : models.map(({ id }) => [id, report] as const));
    switch (first?.ownedBy) {
      case undefined:
        return new Map();
      case 'vllm':
        return ofAll(vllmReport(await ask.json('/version'), (await ask.text(metricsPath)) ?? ''));
      case 'sglang': {
        // Before 0.5.6 the paths began with get_.
        const server = (await ask.json('/server_info')) ?? (await ask.json('/get_server_info'));
        return ofAll(sglangReport(server, (await ask.json('/model_info')) ?? (await ask.json('/get_model_info'))));
      }
      case 'llamacpp': {
        const props = await ask.json('/props');
        return new Map(models.map(({ id, meta }) => [id, llamacppReport(props, meta)]));
      }
      case 'lmdeploy':
        return ofAll(versionReport('lmdeploy', undefined));
      case 'tensorrt_llm':
        return ofAll(versionReport('tensorrt-llm', await ask.json('/version')));
      default: {
        if (stored.unknownKind) return new Map();
        const ofOllama = await this.#ollamaReports(models, stored.shows);
        const ofTgi = ofOllama === undefined ? tgiReport(await ask.json('/info')) : undefined;
        stored.unknownKind = ofOllama === undefined && ofTgi === undefined;
        return ofOllama ?? ofAll(ofTgi);
      }
    }
  }

  /** Undefined if the engine is not Ollama. */
  async #ollamaReports(
    models: readonly ListedModel[],
    shows: Map<string, unknown>,
  ): Promise<Map<string, EngineReport> | undefined> {
    const version = await this.#client.json('/api/version');
    if (versionOf(version) === undefined) return undefined;
    const processes = await this.#client.json('/api/ps');
    const reports = new Map<string, EngineReport>();
    for (const { id } of models) {
      const show = shows.get(id) ?? (await this.#client.json('/api/show', { model: id }));
      shows.set(id, show);
      const report = ollamaReport(id, show, processes, version);
      // After some minutes without requests, Ollama unloads the model, and loads it with the same context again.
      const context = report.facts.context_length ?? this.of(id).context_length;
      reports.set(id, { facts: { ...report.facts, ...(context === undefined ? {} : { context_length: context }) } });
    }
    return reports;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#client.close();
  }
}

function reportedSource(model: ListedModel, report: EngineReport | undefined, env: Env): CheckpointSource | undefined {
  const { path, unchanged } = report?.checkpoint ?? { path: model.root, unchanged: undefined };
  return path === undefined ? undefined : { path, env, unchanged };
}

/** The port of an engine on this machine; undefined for an engine elsewhere, because its files are not here. */
function localPort({ origin }: EngineTarget): number | undefined {
  const { hostname, port, protocol } = new URL(origin);
  const host = hostname.replace(/^\[|\]$/g, '');
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list?.map(({ address }) => address) ?? []);
  const here =
    ['localhost', '0.0.0.0', '::', '::1'].includes(host) || host.startsWith('127.') || addresses.includes(host);
  return here ? Number(port || (protocol === 'https:' ? 443 : 80)) : undefined;
}

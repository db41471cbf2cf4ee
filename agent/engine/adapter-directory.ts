/**
 * The LoRA adapters that the engine may load: the folders of `--lora-dir` that contain an `adapter_config.json`. An
 * order names an adapter, and never a path.
 */
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import type { ServedModel } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';

/** Name of an adapter: a folder, or a folder in a folder, as on the hub. Neither part begins with a dot. */
const PART = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
const CONFIG = 'adapter_config.json';
const CONFIG_MAX_BYTES = 256 * 1024;
/** Maximum adapters of one directory. */
const ADAPTERS_MAX = 256;
/** Maximum bytes of adapters in the registry record, which holds 4 KiB in all. */
const PUBLISHED_MAX_BYTES = 1_200;
const RESCAN_MS = 60_000;

export interface Adapter {
  name: string;
  /** The folder, as the engine opens it. */
  path: string;
  /** The base model that its `adapter_config.json` names: a name on the hub, or a path. */
  base: string;
}

const configSchema = z.object({ base_model_name_or_path: z.string().min(1).max(4096) });

interface AdapterDirectoryOptions {
  directory: string;
  /** Called when the list has changed. */
  changed(): void;
  log(line: string): void;
}

export class AdapterDirectory {
  readonly #options: AdapterDirectoryOptions;
  #adapters: ReadonlyMap<string, Adapter> = new Map();
  #timer: NodeJS.Timeout | undefined;
  #trouble = '';

  constructor(options: AdapterDirectoryOptions) {
    this.#options = options;
  }

  /** Reads the directory, and again every minute: users add adapters while the agent runs. */
  open(): void {
    neverRejects(this.scan());
    this.#timer = setInterval(() => neverRejects(this.scan()), RESCAN_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** The adapter of one of these base models. */
  find(name: string, bases: readonly ServedModel[]): Adapter | undefined {
    const adapter = this.#adapters.get(name);
    return adapter !== undefined && bases.some((base) => isAdapterOf(adapter, base)) ? adapter : undefined;
  }

  /**
   * The adapters of these base models, as they are published while the engine has not loaded them. Those that fit in
   * the record come first by name.
   */
  models(bases: readonly ServedModel[]): ServedModel[] {
    const found: ServedModel[] = [];
    let bytes = 0;
    for (const adapter of this.#adapters.values()) {
      const parent = bases.find((base) => isAdapterOf(adapter, base))?.id;
      if (parent === undefined || bases.some(({ id }) => id === adapter.name)) continue;
      const model: ServedModel = { id: adapter.name, state: 'on-disk', parent };
      bytes += JSON.stringify(model).length + 1;
      if (bytes > PUBLISHED_MAX_BYTES) break;
      found.push(model);
    }
    return found;
  }

  /** Never rejects: if the directory cannot be read, the last list stays. */
  async scan(): Promise<void> {
    const { changed, log } = this.#options;
    try {
      const found = await readAdapters(this.#options.directory, (line) => this.#complain(line));
      const before = JSON.stringify([...this.#adapters]);
      this.#adapters = new Map(found.map((adapter) => [adapter.name, adapter]));
      if (JSON.stringify([...this.#adapters]) !== before) {
        log(`${found.length} adapters in ${this.#options.directory}`);
        changed();
      }
    } catch (error) {
      this.#complain(errorText(error));
    }
  }

  /** Logs a trouble once, and not every minute. */
  #complain(trouble: string): void {
    if (trouble === this.#trouble) return;
    this.#trouble = trouble;
    this.#options.log(`--lora-dir: ${trouble}`);
  }
}

function isAdapterOf({ base }: Adapter, { id, parent }: ServedModel): boolean {
  return parent === undefined && (base === id || lastPart(base) === lastPart(id));
}

/** `Qwen3-8B` of `Qwen/Qwen3-8B` and of `/models/Qwen3-8B/`: engines serve a checkpoint under another name. */
function lastPart(name: string): string {
  return (
    name
      .split('/')
      .filter((part) => part !== '')
      .at(-1) ?? ''
  ).toLowerCase();
}

/** @throws Error if the directory cannot be read, or if other users can write it */
async function readAdapters(directory: string, complain: (line: string) => void): Promise<Adapter[]> {
  const root = await realpath(directory);
  const { uid, mode } = await stat(root);
  // An adapter changes what the model answers, and some formats run code when they are loaded.
  if ((uid !== process.getuid?.() && uid !== 0) || (mode & 0o002) !== 0)
    throw new Error(`${directory} must belong to this user or root, and other users must not be able to write it`);
  const found: Adapter[] = [];
  for (const name of await folders(root)) {
    const names = (await isAdapter(join(root, name)))
      ? [name]
      : (await folders(join(root, name))).map((inner) => `${name}/${inner}`);
    for (const one of names) {
      if (found.length >= ADAPTERS_MAX) {
        complain(`only the first ${ADAPTERS_MAX} adapters of ${directory} are used`);
        return found;
      }
      const adapter = await readAdapter(root, one).catch((error: unknown) => complain(`${one}: ${errorText(error)}`));
      if (adapter !== undefined) found.push(adapter);
    }
  }
  return found;
}

async function folders(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  return entries
    .filter((one) => one.isDirectory() && PART.test(one.name))
    .map(({ name }) => name)
    .sort();
}

function isAdapter(path: string): Promise<boolean> {
  return stat(join(path, CONFIG)).then(
    (found) => found.isFile(),
    () => false,
  );
}

/** Undefined: the folder is not an adapter. */
async function readAdapter(root: string, name: string): Promise<Adapter | undefined> {
  const path = join(root, name);
  if (!(await isAdapter(path))) return undefined;
  const file = join(path, CONFIG);
  if ((await stat(file)).size > CONFIG_MAX_BYTES) throw new Error(`${CONFIG} is longer than ${CONFIG_MAX_BYTES} bytes`);
  const read = configSchema.safeParse(tryParseJson(await readFile(file, 'utf8')));
  if (!read.success) throw new Error(`${CONFIG} names no base model`);
  return { name, path, base: read.data.base_model_name_or_path };
}

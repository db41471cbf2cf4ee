/**
 * The gateway's host as a parameter of the tests: a program that is started, answers at a URL, and keeps its data in
 * one directory.
 */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { YOUNG_GENERATION_FLAG } from '../../gateway/hosts/node/serve/young-generation.ts';
import { descendants, memoryOf } from './process-table.ts';
import { atEnd, Managed } from './processes.ts';
import { GATEWAY_MAIN, NODE, ROOT } from './where.ts';

/** Time limit of a start, which takes 1 s on an idle machine. */
const READY_MS = 120_000;

interface HostOptions {
  data: string;
  host: string;
  port: number;
  /** Additional flags of `serve`. */
  args: string[];
  env?: Record<string, string> | undefined;
  /** File of another build of the program. */
  main?: string | undefined;
  /** Prepended to the command, e.g. `ip netns exec gateway`. */
  prefix?: string[] | undefined;
}

/** One run of the host. */
export interface RunningHost {
  readonly process: Managed;
  /** Resolves with the URL's scheme when it answers; rejects with its output if it ends before. */
  ready(): Promise<'http' | 'https'>;
  /** The operator's first key. */
  adminKey(): Promise<string>;
  /** Sends TERM and waits until all its processes have ended. */
  stop(): Promise<void>;
  /** Sends KILL to all its processes together, as an out-of-memory kill or a power failure would. */
  kill9(): Promise<void>;
  /** Resident memory of all its processes. */
  memoryMib(): number;
}

export interface Host {
  readonly name: HostName;
  start(options: HostOptions): RunningHost;
}

/**
 * `node`: `otela-gateway serve`. `postgresql`: the same with `--database`. `processes`: two processes that share the
 * database. `sqlite-processes`: two processes that share the data directory. `worker`: `wrangler dev`. `postgresql`,
 * `processes` and `worker` are behind programs with the same flags.
 */
const HOST_NAMES = ['node', 'postgresql', 'processes', 'sqlite-processes', 'worker'] as const;
export type HostName = (typeof HOST_NAMES)[number];

/** With this flag the program does not start itself again, which would double its start time. */
const FLAGS: Readonly<Record<HostName, string[]>> = {
  node: [YOUNG_GENERATION_FLAG],
  postgresql: [],
  processes: [],
  'sqlite-processes': [YOUNG_GENERATION_FLAG],
  worker: [],
};

/** Programs that take `serve --port --host --data`, print `otela-gateway ready URL` and write DATA/admin.key. */
const MAINS: Readonly<Record<HostName, string>> = {
  node: GATEWAY_MAIN,
  postgresql: join(ROOT, 'test/support/postgres-host.ts'),
  processes: join(ROOT, 'test/support/postgres-host.ts'),
  'sqlite-processes': GATEWAY_MAIN,
  worker: join(ROOT, 'test/support/worker-host.ts'),
};

class ServedHost implements RunningHost {
  readonly process: Managed;
  readonly #data: string;

  constructor(main: string, flags: string[], { data, host, port, args, env, prefix = [] }: HostOptions) {
    this.#data = data;
    // The host `postgresql` keeps its database beside the data, which its gateway would refuse to share.
    atEnd(() => rm(`${data}-postgres`, { recursive: true, force: true, maxRetries: 5 }));
    const serve = ['serve', '--port', String(port), '--host', host, '--data', data, ...args];
    const options = { label: 'gateway', cwd: ROOT, ...(env && { env }) };
    this.process = new Managed([...prefix, NODE, ...flags, main, ...serve], options);
  }

  async ready(): Promise<'http' | 'https'> {
    const [, scheme] = await this.process.line(/otela-gateway ready (https?):\/\/\S+/, READY_MS);
    return scheme === 'https' ? 'https' : 'http';
  }

  async adminKey(): Promise<string> {
    return (await readFile(join(this.#data, 'admin.key'), 'utf8')).trim();
  }

  stop(): Promise<void> {
    return this.process.stop();
  }

  async kill9(): Promise<void> {
    for (const pid of descendants(this.process.pid)) kill(pid);
    this.process.signal('SIGKILL', 'group');
    await this.process.end(5_000);
  }

  memoryMib(): number {
    return [this.process.pid, ...descendants(this.process.pid)].reduce((sum, pid) => sum + memoryOf(pid).rssMib, 0);
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended meanwhile.
  }
}

function hostNamed(name: string): Host {
  const known = HOST_NAMES.find((one) => one === name);
  const main = known && MAINS[known];
  if (known === undefined || main === undefined)
    throw new Error(`OTELA_TEST_HOST=${name}: there is no such host; there are ${Object.keys(MAINS).join(', ')}`);
  const more = known.endsWith('processes') ? ['--processes', '2'] : [];
  const start = (options: HostOptions) =>
    new ServedHost(options.main ?? main, FLAGS[known], { ...options, args: [...options.args, ...more] });
  return { name: known, start };
}

/** The host of this run: `OTELA_TEST_HOST=worker npx vitest run --project conformance`. */
export const HOST: Host = hostNamed(process.env.OTELA_TEST_HOST ?? 'node');

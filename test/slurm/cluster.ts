/** A real Slurm for tests: `slurm-up` and `slurm-down`, jobs of an ordinary user, and their results. */
import { execFile, spawnSync } from 'node:child_process';
import { chmod, chown, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { patience } from '../support/patience.ts';
import { atEnd, eventually, freePort, freePorts, temporaryDirectory } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';
import { installPrograms } from './programs.ts';

const HERE = join(ROOT, 'test/slurm');
/** slurmctld and four slurmd, which listen on adjacent ports. */
const DAEMONS = 5;
/** Debian's `nobody`: an ordinary user without a home directory. */
export const USER = { uid: 65_534, gid: 65_534 };

function run(
  command: string,
  args: string[],
  options: { env: Record<string, string>; asUser?: boolean; input?: string },
): string {
  const done = spawnSync(command, args, {
    encoding: 'utf8',
    env: options.env,
    timeout: patience(120_000),
    cwd: '/tmp',
    ...(options.input === undefined ? {} : { input: options.input }),
    ...(options.asUser === true ? USER : {}),
  });
  if (done.status !== 0)
    throw new Error(`${command} ${args.join(' ')}: ${done.error ?? done.status}\n${done.stdout}\n${done.stderr}`);
  return done.stdout;
}

export interface JobOptions {
  /** Additional `#SBATCH` options, e.g. `--partition=preempt`. */
  sbatch?: string[];
  /** Lines of the script. */
  script: string;
}

export class Cluster {
  readonly directory: string;
  readonly #env: Record<string, string>;
  /** Precedes Slurm's commands, which must run where Slurm's addresses are reachable. */
  readonly #prefix: readonly string[];

  private constructor(directory: string, env: Record<string, string>, prefix: readonly string[]) {
    this.directory = directory;
    this.#env = env;
    this.#prefix = prefix;
  }

  /**
   * Starts Slurm in a separate directory; `endAll` stops it.
   * @param namespaces network namespaces of the four nodes; absent: this machine's
   */
  static async up(extra = '', namespaces: readonly string[] = []): Promise<Cluster> {
    const directory = await temporaryDirectory('otela-slurm');
    await chmod(directory, 0o755);
    const env = {
      PATH: `${process.env.PATH ?? ''}:/usr/sbin:/sbin`,
      SLURM_TEST_DIR: join(directory, 'slurm'),
      SLURM_TEST_PORT: String(await freePorts(DAEMONS)),
      SLURM_TEST_EXTRA: extra,
      SLURM_TEST_NETNS: namespaces.join(' '),
    };
    atEnd(() => void run(join(HERE, 'slurm-down'), ['--clean'], { env })); // also stops the parts of a failed start
    run(join(HERE, 'slurm-up'), [], { env });
    const prefix = namespaces.slice(0, 1).flatMap((one) => ['ip', 'netns', 'exec', one]);
    const cluster = new Cluster(directory, { ...env, SLURM_CONF: join(env.SLURM_TEST_DIR, 'etc/slurm.conf') }, prefix);
    await installPrograms(directory);
    return cluster;
  }

  /** A file that only the user's jobs can read. */
  async secret(name: string, content: string): Promise<string> {
    const path = join(this.directory, name);
    await rm(path, { force: true });
    await writeFile(path, `${content}\n`, { mode: 0o600 });
    await chown(path, USER.uid, USER.gid);
    return path;
  }

  /** A shell line that starts agent and mock engine; `how` precedes it, e.g. `exec` or `srun`. */
  async agentLine(
    how: string,
    gateway: string,
    tokenFile: string,
    model: string,
    flags = '',
    engineFlags = '',
  ): Promise<string> {
    const bin = join(this.directory, 'bin');
    const port = await freePort();
    // All nodes of this Slurm are one machine, so the other ranks of an engine need different ports.
    const engine = `${bin}/node ${bin}/stand-in-engine.mjs --port $((${port} + \${SLURM_PROCID:-0})) --model ${model} ${engineFlags}`;
    return `${how} ${bin}/node ${bin}/otela-agent.mjs start --gateway ${gateway} --token-file ${tokenFile} --engine-port ${port} --mesh 127.0.0.1 ${flags} -- bash -c 'exec ${engine}'`;
  }

  async submit(options: JobOptions): Promise<Job> {
    const lines = (options.sbatch ?? []).map((option) => `#SBATCH ${option}\n`).join('');
    const script = `#!/bin/bash\n${lines}export PATH=${this.directory}/bin:$PATH\nunset PROXY HTTP_PROXY http_proxy\n${options.script}\n`;
    const out = join(this.directory, 'out', '%j.log');
    const env = { ...this.#env, HOME: '/nonexistent', USER: 'nobody' };
    const args = ['--parsable', `--output=${out}`, '--open-mode=append', '--chdir=/tmp'];
    const id = run('sbatch', args, { env, asUser: true, input: script }).trim();
    const job = new Job(this, id);
    atEnd(() => job.cancel());
    return job;
  }

  /** For commands of an ordinary user. */
  get userEnv(): Record<string, string> {
    return { ...this.#env };
  }

  /** Runs a Slurm command as root. */
  command(name: string, ...args: string[]): string {
    const [file = '', ...words] = [...this.#prefix, name, ...args];
    return run(file, words, { env: this.#env });
  }

  /** The same without blocking, for frequent queries: servers close the connections of a test that blocks meanwhile. */
  async asked(name: string, ...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(name, args, {
      env: this.#env,
      timeout: patience(60_000),
      cwd: '/tmp',
    });
    return stdout;
  }

  /** The output of an installed program for the user, whatever its exit code. */
  program(name: string, ...args: string[]): string {
    const bin = join(this.directory, 'bin');
    const env = { ...this.#env, HOME: '/nonexistent', USER: 'nobody' };
    const done = spawnSync(join(bin, 'node'), [join(bin, name), ...args], {
      encoding: 'utf8',
      env,
      cwd: '/tmp',
      ...USER,
    });
    return `${done.stdout}${done.stderr}`;
  }

  /** Command lines of processes that run the programs installed here. */
  processes(name: RegExp): string {
    const done = spawnSync('ps', ['-eo', 'args'], { encoding: 'utf8' });
    return done.stdout
      .split('\n')
      .filter((line) => line.includes(join(this.directory, 'bin')) && name.test(line))
      .join('\n');
  }

  /** From a job's submission to its start, by Slurm's clock of whole seconds. */
  queuedMs(id: string): number {
    const text = this.command('scontrol', 'show', 'job', id);
    const at = (field: string) => Date.parse(new RegExp(`\\s${field}=(\\S+)`).exec(text)?.[1] ?? '');
    return at('StartTime') - at('SubmitTime');
  }

  /** Ends slurmctld as a restart of its machine would; jobs continue. */
  stopController(): void {
    this.command('scontrol', 'shutdown', 'slurmctld');
  }

  startController(): void {
    run(join(HERE, 'slurm-up'), [], { env: this.#env });
  }
}

export class Job {
  readonly id: string;
  readonly #cluster: Cluster;

  constructor(cluster: Cluster, id: string) {
    this.#cluster = cluster;
    this.id = id;
  }

  /** One field of `scontrol show job`. */
  field(name: string): string {
    const text = this.#cluster.command('scontrol', 'show', 'job', this.id);
    return new RegExp(`(?:^|\\s)${name}=(\\S*)`).exec(text)?.[1] ?? '';
  }

  cancel(...args: string[]): void {
    try {
      this.#cluster.command('scancel', '--quiet', ...args, this.id);
    } catch {
      // It has already ended.
    }
  }

  async output(): Promise<string> {
    return readFile(join(this.#cluster.directory, 'out', `${this.id}.log`), 'utf8').catch(() => '');
  }

  /** Waits for a state, e.g. RUNNING or COMPLETED; an error includes the job's output. */
  async reaches(states: string | string[], withinMs: number): Promise<string> {
    const wanted = [states].flat();
    try {
      return await eventually(`job ${this.id} is ${wanted.join(' or ')}`, withinMs, () => {
        const state = this.field('JobState');
        return wanted.includes(state) ? state : undefined;
      });
    } catch (cause) {
      throw new Error(`job ${this.id} is ${this.field('JobState')}\n${await this.output()}`, { cause });
    }
  }
}

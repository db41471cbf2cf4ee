/**
 * A real Grid Engine for tests: one machine with two simulated GPUs, in a separate directory. Needs root and Debian's
 * gridengine packages.
 */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { commandRunner, type RunCommand } from '../../node/command-runner.ts';
import { patience } from '../support/patience.ts';
import { atEnd, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { USER } from './cluster.ts';

const PROGRAMS = '/usr/lib/gridengine';
const SHARE = '/usr/share/gridengine';
const SLOTS = 8;
export const GPUS = 2;

/** The reason that it cannot run here; undefined: it can. */
export function noGridEngine(): string | undefined {
  const missing = [
    '/usr/sbin/sge_qmaster',
    '/usr/sbin/sge_execd',
    `${PROGRAMS}/spooldefaults`,
    `${PROGRAMS}/qsub`,
  ].filter((path) => !existsSync(path));
  if (missing.length > 0)
    return `${missing.join(', ')}: not there (apt-get install gridengine-master gridengine-exec gridengine-client)`;
  return process.getuid?.() === 0 ? undefined : 'not root';
}

export class GridEngine {
  readonly directory: string;
  readonly #env: Record<string, string>;
  #master: Managed | undefined;

  private constructor(directory: string, env: Record<string, string>) {
    this.directory = directory;
    this.#env = env;
  }

  /** `endAll` stops it, jobs first. */
  static async up(): Promise<GridEngine> {
    const directory = await temporaryDirectory('otela-gridengine');
    await chmod(directory, 0o755);
    const engine = new GridEngine(directory, {
      SGE_ROOT: join(directory, 'root'),
      SGE_CELL: 'default',
      SGE_QMASTER_PORT: String(await freePort()),
      SGE_EXECD_PORT: String(await freePort()),
      PATH: `${PROGRAMS}:${process.env.PATH ?? ''}`,
    });
    await engine.#install();
    await engine.startMaster();
    await engine.#configure();
    engine.#daemon('sge_execd');
    await eventually('the machine takes jobs', 30_000, () =>
      /^gpu@\S+\s+BI?P?\s+0\/0\/8\s+[\d.]+/m.test(engine.command('qstat', '-f')) ? true : undefined,
    );
    atEnd(() => void engine.#run('qdel', ['-f', '-u', '*']));
    return engine;
  }

  /** The environment of the ordinary user that runs the autoscaler. */
  get userEnv(): Record<string, string> {
    return { ...this.#env, HOME: '/nonexistent', USER: 'nobody', LOGNAME: 'nobody' };
  }

  /** Runs as that user. */
  get run(): RunCommand {
    const run = commandRunner(this.userEnv);
    const user = [`--reuid=${USER.uid}`, `--regid=${USER.gid}`, '--clear-groups'];
    return (file, args, input) => run('setpriv', [...user, join(PROGRAMS, file), ...args], input);
  }

  /** Runs as root. @throws Error with its output */
  command(name: string, ...args: string[]): string {
    const done = this.#run(name, args);
    if (done.status !== 0) throw new Error(`${name} ${args.join(' ')}: ${done.status}\n${done.stdout}${done.stderr}`);
    return done.stdout;
  }

  async startMaster(): Promise<void> {
    this.#master = this.#daemon('sge_qmaster');
    await eventually('qmaster answers', 30_000, () => (this.#run('qconf', ['-sh']).status === 0 ? true : undefined));
  }

  async stopMaster(): Promise<void> {
    await this.#master?.stop();
  }

  async #install(): Promise<void> {
    const root = join(this.directory, 'root');
    const common = join(root, 'default/common');
    const spool = join(this.directory, 'spool');
    for (const path of [common, join(spool, 'qmaster/job_scripts'), join(spool, 'exec')])
      await mkdir(path, { recursive: true });
    await symlink(join(SHARE, 'util'), join(root, 'util'));
    const architecture = spawnSync(join(SHARE, 'util/arch'), { encoding: 'utf8' }).stdout.trim();
    for (const name of ['bin', 'lib', 'utilbin']) {
      await mkdir(join(root, name));
      await symlink(PROGRAMS, join(root, name, architecture));
    }
    await writeFile(join(common, 'act_qmaster'), `${hostname()}\n`);
    // The machine's name may resolve to the loopback address.
    await writeFile(join(common, 'host_aliases'), `${hostname()} localhost\n`);
    const classic = `${common};${join(spool, 'qmaster')}`;
    await writeFile(join(common, 'bootstrap'), bootstrap(classic, join(spool, 'qmaster')));
    const text = await readFile(join(SHARE, 'default-configuration'), 'utf8');
    const configuration = join(this.directory, 'configuration');
    await writeFile(
      configuration,
      changed(text, { execd_spool_dir: join(spool, 'exec'), min_uid: '0', gid_range: '20000-20100' }),
    );
    this.command('spoolinit', 'classic', 'libspoolc', classic, 'init');
    this.command('spooldefaults', 'configuration', configuration);
    this.command('spooldefaults', 'complexes', join(SHARE, 'util/resources/centry'));
    this.command('spooldefaults', 'usersets', join(SHARE, 'util/resources/usersets'));
    this.command('spooldefaults', 'managers', 'root');
  }

  /** A submit host, a complex that counts GPUs, a machine that has two GPUs, and the queue `gpu`. */
  async #configure(): Promise<void> {
    const host = hostname();
    const file = async (name: string, text: string) => {
      await writeFile(join(this.directory, name), text);
      return join(this.directory, name);
    };
    this.command('qconf', '-as', host);
    const complexes = `${this.command('qconf', '-sc')}gpu gpu INT <= YES YES 0 0\n`;
    this.command('qconf', '-Mc', await file('complexes', complexes));
    const lists = ['user_lists', 'xuser_lists', 'projects', 'xprojects', 'usage_scaling', 'report_variables'];
    const machine = [
      `hostname ${host}`,
      'load_scaling NONE',
      `complex_values gpu=${GPUS}`,
      ...lists.map((name) => `${name} NONE`),
    ];
    this.command('qconf', '-Ae', await file('machine', `${machine.join('\n')}\n`));
    const queue = changed(this.command('qconf', '-sq'), {
      qname: 'gpu',
      hostlist: host,
      slots: String(SLOTS),
      pe_list: 'NONE',
      load_thresholds: 'NONE',
      shell: '/bin/bash',
    });
    this.command('qconf', '-Aq', await file('queue', queue));
    const schedule = changed(this.command('qconf', '-ssconf'), { schedule_interval: '0:0:1' });
    this.command('qconf', '-Msconf', await file('schedule', schedule));
  }

  #daemon(name: string): Managed {
    // SGE_ND keeps it in the foreground.
    return new Managed([join('/usr/sbin', name)], { label: name, env: { ...this.#env, SGE_ND: '1' }, cwd: '/tmp' });
  }

  #run(name: string, args: readonly string[]): SpawnSyncReturns<string> {
    const env = { ...this.#env };
    return spawnSync(join(PROGRAMS, name), args, { encoding: 'utf8', env, timeout: patience(30_000), cwd: '/tmp' });
  }
}

const bootstrap = (classic: string, spool: string) => `admin_user root
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params ${classic}
binary_path ${PROGRAMS}
qmaster_spool_dir ${spool}
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
`;

/** Replaces values in lines `name value`. */
function changed(text: string, values: Readonly<Record<string, string>>): string {
  return Object.entries(values).reduce(
    (now, [name, value]) => now.replace(new RegExp(`^${name}\\s.*$`, 'm'), `${name} ${value}`),
    text,
  );
}

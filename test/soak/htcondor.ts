/**
 * `npm run soak -- htcondor`: the launcher's five calls on a real HTCondor, and an agent in a job of it: its GPUs, its
 * end, and why it left. Then an agent in a job on a machine that does not see the submitting machine's files. Debian has it from version 13 on (apt-get install condor). On an older Debian name a tree of
 * Debian 13 in OTELA_HTCONDOR_ROOT, as `debootstrap --variant=minbase --include=condor,procps trixie DIR` makes it.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commandRunner } from '../../node/command-runner.ts';
import { USER } from '../slurm/cluster.ts';
import { launcherCase, PREFIX } from '../slurm/launcher-case.ts';
import { installPrograms } from '../slurm/programs.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, eventually, freePort, Managed } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { runByHand } from './by-hand.ts';

const ROOT = process.env.OTELA_HTCONDOR_ROOT ?? '/';
/** The same as in test/slurm/nvidia-smi on a machine that is not a Slurm node; HTCondor assigns them. */
const GPUS = [0, 1].map((n) => `GPU-00000000-0000-0000-0000-1${String(n).padStart(11, '0')}`);
const MINUTES = 20;

/** Which daemons a machine runs, and its file system. */
interface Machine {
  daemons: string;
  files: string;
}
const WHOLE: Machine = { daemons: 'COLLECTOR NEGOTIATOR SCHEDD STARTD', files: 'localdomain' };
const SUBMITTING: Machine = { daemons: 'COLLECTOR NEGOTIATOR SCHEDD', files: 'submitting' };
const EXECUTING: Machine = { daemons: 'STARTD', files: 'executing' };

/** Daemons of one machine; `directory` is the path that they see. */
const configuration = (directory: string, port: number, { daemons, files }: Machine) => `CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:${port}
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = false
USE_SHARED_PORT = false
LOCAL_DIR = ${directory}
LOG = ${directory}/log
SPOOL = ${directory}/spool
EXECUTE = ${directory}/execute
LOCK = ${directory}/lock
RUN = ${directory}/run
RELEASE_DIR = /usr
LIBEXEC = /usr/libexec/condor
DAEMON_LIST = MASTER ${daemons}
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_AUTHENTICATION = OPTIONAL
SEC_USE_FAMILY_SESSION = false
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_ADMINISTRATOR = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
UID_DOMAIN = localdomain
FILESYSTEM_DOMAIN = ${files}
TRUST_UID_DOMAIN = true
MOUNT_UNDER_SCRATCH =
MOUNT_PRIVATE_DEV_SHM = false
START = true
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 3
UPDATE_INTERVAL = 3
NUM_CPUS = 4
MACHINE_RESOURCE_GPUs = ${GPUS.join(', ')}
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = true
`;

const DIRECTORIES = ['log', 'spool', 'execute', 'lock', 'run', 'jobs'];

const EXECUTING_NAME = 'executing';

class HTCondor {
  /** The path that its daemons and jobs see. */
  readonly directory: string;
  /** The path that this process sees. */
  readonly outside: string;
  readonly #apart: boolean;
  #masters: Managed[] = [];

  private constructor(directory: string, apart: boolean) {
    this.directory = directory;
    this.outside = join(ROOT, directory);
    this.#apart = apart;
  }

  /** @param apart true: jobs run on another machine, which has none of the submitting machine's files */
  static async up(apart: boolean): Promise<HTCondor> {
    const made = await mkdtemp(join(ROOT, 'tmp/otela-htcondor-'));
    const condor = new HTCondor(join('/', made.slice(ROOT.length)), apart);
    atEnd(() => rm(made, { recursive: true, force: true }));
    await chmod(made, 0o755);
    const port = await freePort();
    await condor.#prepare('', port, apart ? SUBMITTING : WHOLE);
    if (apart) {
      await mkdir(join(made, EXECUTING_NAME), { mode: 0o755 });
      await condor.#prepare(EXECUTING_NAME, port, EXECUTING);
    }
    await condor.start();
    return condor;
  }

  async #prepare(name: string, port: number, machine: Machine): Promise<void> {
    const [inside, outside] = [join(this.directory, name), join(this.outside, name)];
    for (const one of DIRECTORIES) {
      await mkdir(join(outside, one));
      await chmod(join(outside, one), one === 'jobs' || one === 'execute' ? 0o1777 : 0o755);
    }
    await writeFile(join(outside, 'config'), configuration(inside, port, machine));
    this.root('chown', '-R', 'condor', ...['log', 'spool', 'lock', 'run'].map((one) => join(inside, one)));
  }

  #startMaster(before: readonly string[], name: string): void {
    const env = { CONDOR_CONFIG: join(this.directory, name, 'config') };
    const command = [...before, 'chroot', ROOT, 'condor_master', '-f'];
    this.#masters.push(new Managed(command, { label: `condor_master ${name}`, env }));
  }

  async start(): Promise<void> {
    this.#startMaster([], '');
    if (this.#apart) {
      // An empty directory hides the programs and jobs of the submitting machine.
      const hide = `mount -t tmpfs none ${join(this.outside, 'jobs')} && exec "$@"`;
      this.#startMaster(['unshare', '--mount', 'sh', '-c', hide, 'sh'], EXECUTING_NAME);
    }
    await eventually('the machine takes jobs', 60_000, async () => {
      const { out } = await this.status('-autoformat', 'GPUs');
      return out.trim() === String(GPUS.length) ? true : undefined;
    });
  }

  async stop(): Promise<void> {
    await Promise.all(this.#masters.map((master) => master.stop()));
    this.#masters = [];
  }

  get #env(): Record<string, string> {
    return { CONDOR_CONFIG: `${this.directory}/config` };
  }

  root(...argv: string[]): void {
    const done = spawnSync('chroot', [ROOT, ...argv], { encoding: 'utf8' });
    assert.equal(done.status, 0, `${argv.join(' ')}: ${done.stderr}`);
  }

  /** As the ordinary user that runs the autoscaler. */
  readonly run: ReturnType<typeof commandRunner> = (file, args, input) => {
    const user = [`--reuid=${USER.uid}`, `--regid=${USER.gid}`, '--clear-groups'];
    const env = { ...this.#env, USER: 'nobody', HOME: '/nonexistent' };
    return commandRunner(env)('chroot', [ROOT, 'setpriv', ...user, file, ...args], input);
  };

  async status(...args: string[]): Promise<{ out: string }> {
    const done = await this.run('condor_status', args);
    return done.kind === 'done' ? done : { out: '' };
  }
}

const launcherOf = (condor: HTCondor, transferred: readonly string[] = []) =>
  launcherCase({
    launcher: 'htcondor',
    run: condor.run,
    minutes: MINUTES,
    ...(transferred.length > 0 && { cluster: `transfer_files = ${JSON.stringify(transferred)}` }),
    pool: 'memory = "100MB"',
    log: `${condor.directory}/jobs/crc-%j.log`,
  });

async function fiveCalls(condor: HTCondor): Promise<void> {
  const { launcher, submission } = launcherOf(condor);
  assert.deepEqual(await launcher.list(PREFIX), []);
  const checked = await launcher.check(submission);
  assert(checked.ok, JSON.stringify(checked));
  const idle = (count: number) =>
    eventually(`${count} idle GPUs`, 60_000, async () =>
      (await launcher.capacity())?.[0]?.idle === count ? true : undefined,
    );
  await idle(GPUS.length);
  // One more than there are GPUs.
  const ids = await launcher.submit({ ...submission, count: GPUS.length + 1 });
  assert.equal(ids.length, GPUS.length + 1);
  const running = async () => (await launcher.list(PREFIX)).filter(({ state }) => state === 'running').length;
  await eventually('all but one begin', 120_000, async () => ((await running()) === GPUS.length ? true : undefined));
  assert.equal((await launcher.list(PREFIX)).length, GPUS.length + 1);
  await launcher.cancel(ids);
  await eventually('none is left', 60_000, async () => ((await launcher.list(PREFIX)).length === 0 ? true : undefined));
  // Canceling an ended job is not an error.
  await launcher.cancel(ids);
  await idle(GPUS.length);
  await condor.stop();
  await assert.rejects(launcher.list(PREFIX), { code: 'unreachable' });
  await condor.start();
  assert.deepEqual(await launcher.list(PREFIX), []);
  console.log(
    'the launcher: checks, submits, lists, counts idle GPUs, cancels, and tells a queue that is away from an empty one',
  );
}

/** A job in the autoscaler's form, with an agent and a mock engine as its body. */
async function agentInJob(condor: HTCondor): Promise<void> {
  const gateway = await Gateway.start();
  await installPrograms(condor.outside);
  const bin = `${condor.directory}/bin`;
  await writeFile(join(condor.outside, 'jobs/token'), await gateway.createJoinToken('crc', 'crc'), { mode: 0o600 });
  condor.root('chown', String(USER.uid), `${condor.directory}/jobs/token`);
  const { launcher, submission } = launcherOf(condor);
  const port = await freePort();
  const body = [
    `export PATH=${bin}:$PATH CONDOR_CONFIG=${condor.directory}/config OTELA_MESH=127.0.0.1 TMPDIR=$_CONDOR_SCRATCH_DIR`,
    `exec node ${bin}/otela-agent.mjs start --gateway ${gateway.url} --token-file ${condor.directory}/jobs/token --engine-port ${port} --drain-before 30s \\`,
    `  -- node ${bin}/stand-in-engine.mjs --port ${port} --model ${MODEL}`,
  ].join('\n');
  const before = Date.now();
  const [id = ''] = await launcher.submit({ ...submission, body });
  const node = await eventually('a node that serves', 120_000, async () =>
    (await gateway.nodes()).find(({ state }) => state === 'SERVING'),
  );
  const shown = JSON.parse(JSON.stringify(await gateway.admin('GET', `nodes/${node.session}`)));
  assert.equal(shown.job.id, id);
  assert.equal(shown.hardware.gpus.length, 1);
  const end = (Date.parse(shown.job.ends_at) - before) / 60_000;
  assert(end > MINUTES - 0.1 && end < MINUTES + 3, `it ends after ${end} minutes`);
  await launcher.cancel([id]);
  const left = await eventually('it has left', 60_000, async () => {
    const now = JSON.parse(JSON.stringify(await gateway.admin('GET', `nodes/${node.session}`)));
    return now.state === 'LEFT' ? now : undefined;
  });
  assert.equal(left.cause, 'cancelled');
  console.log(
    `an agent in job ${id}: one GPU of two, an end in ${end.toFixed(1)} minutes; after condor_rm its cause is "cancelled"`,
  );
}

/** The submit file brings everything that the job needs, and its output back. */
async function withoutSharedHome(): Promise<void> {
  const condor = await HTCondor.up(true);
  const gateway = await Gateway.start();
  await installPrograms(join(condor.outside, 'jobs'));
  const token = join(condor.directory, 'jobs/token');
  await writeFile(join(condor.outside, 'jobs/token'), await gateway.createJoinToken('crc', 'crc'), { mode: 0o600 });
  condor.root('chown', String(USER.uid), token);
  const programs = ['node', 'nvidia-smi', 'otela-agent.mjs', 'stand-in-engine.mjs'];
  const { launcher, submission } = launcherOf(condor, [
    ...programs.map((name) => `${condor.directory}/jobs/bin/${name}`),
    token,
  ]);
  const port = await freePort();
  const body = [
    `[ ! -e ${token} ] && [ ! -e ${condor.directory}/jobs/bin/node ] || exit 99`,
    'echo "the token has mode $(stat -c %a token)"',
    'export PATH=$PWD:$PATH OTELA_MESH=127.0.0.1 TMPDIR=$_CONDOR_SCRATCH_DIR HOME=$_CONDOR_SCRATCH_DIR',
    `exec ./node ./otela-agent.mjs start --gateway ${gateway.url} --token-file ./token --engine-port ${port} --drain-before 30s \\`,
    `  -- ./node ./stand-in-engine.mjs --port ${port} --model ${MODEL}`,
  ].join('\n');
  const [id = ''] = await launcher.submit({ ...submission, body });
  const log = join(condor.outside, `jobs/crc-${id}.log`);
  const printed = () => readFile(log, 'utf8').catch(() => '');
  const node = await eventually('a node that serves', 120_000, async () => {
    const served = (await gateway.nodes()).find(({ state }) => state === 'SERVING');
    const ended = (await launcher.list(PREFIX)).every(({ state }) => state === 'ended');
    assert(served !== undefined || !ended, `the job has ended: ${await printed()}`);
    return served;
  });
  const shown = JSON.parse(JSON.stringify(await gateway.admin('GET', `nodes/${node.session}`)));
  assert.equal(shown.job.id, id);
  assert.equal(shown.hardware.gpus.length, 1);
  // The factory sees the job's output while it runs.
  assert.match(await eventually('output', 30_000, async () => (await printed()) || undefined), /mode 600/);
  await launcher.cancel([id]);
  await eventually('it has left', 60_000, async () => {
    const now = JSON.parse(JSON.stringify(await gateway.admin('GET', `nodes/${node.session}`)));
    return now.state === 'LEFT' ? true : undefined;
  });
  console.log(`an agent in job ${id} on a machine without the submitting machine's files: all came with the job`);
}

async function run(): Promise<void> {
  const condor = await HTCondor.up(false);
  await fiveCalls(condor);
  await agentInJob(condor);
  await condor.stop();
  await withoutSharedHome();
}

function notHere(): string | undefined {
  if (process.getuid?.() !== 0) return 'not root';
  const master = join(ROOT, 'usr/sbin/condor_master');
  return existsSync(master)
    ? undefined
    : `${master}: not there (Debian 13: apt-get install condor; else OTELA_HTCONDOR_ROOT)`;
}

await runByHand(run, notHere());

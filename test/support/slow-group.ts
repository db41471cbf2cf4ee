/**
 * A control group with a fifth of one core, unless another number is given: processes in it run as on a machine that is
 * many times slower. Linux, root; versions 1 and 2.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Linux divides CPU time by this period: a process runs for the quota, and stalls for the rest of the period. */
const PERIOD_US = 100_000;
const A_FIFTH = 0.2;
/** Weights of a group if nothing is said, in version 1 and in version 2; and the largest of version 2. */
const [SHARES, WEIGHT, WEIGHT_MAX] = [1_024, 100, 10_000];
const ROOT_V2 = '/sys/fs/cgroup';

/** Directories of one group: one in version 2, one per controller in version 1. */
interface Group {
  directories: readonly string[];
  cpuSeconds(): number;
  throttledSeconds(): number;
}

interface SlowGroupOptions {
  /** Differs between groups of this process. */
  label?: string;
  /** Cores that the group may use; infinite: all. */
  cores?: number;
  /** Its part of busy cores, as a multiple of that of another group or process. */
  weight?: number;
}

export class SlowGroup {
  readonly #group: Group;

  private constructor(group: Group) {
    this.#group = group;
  }

  /** @throws Error with the reason if this machine allows no such group */
  static make({ label = '', cores = A_FIFTH, weight = 1 }: SlowGroupOptions = {}): SlowGroup {
    if (process.platform !== 'linux') throw new Error(`control groups need Linux, this is ${process.platform}`);
    const name = `otela-slow-${process.pid}${label}`;
    const isSecond = existsSync(join(ROOT_V2, 'cgroup.controllers'));
    return new SlowGroup(isSecond ? second(name, cores, weight) : first(name, cores, weight));
  }

  /** Moves a process into the group. Its later children also run there. */
  enter(pid: number): void {
    for (const directory of this.#group.directories) writeFileSync(join(directory, 'cgroup.procs'), String(pid));
  }

  /** A command line that runs `argv` in the group, from its first instruction on. */
  command(argv: readonly string[]): string[] {
    const files = this.#group.directories.map((directory) => join(directory, 'cgroup.procs'));
    const enter = files.map((_, at) => `echo $$ > "$${at + 1}"`).join(' && ');
    return ['sh', '-c', `${enter} && shift ${files.length} && exec "$@"`, 'sh', ...files, ...argv];
  }

  get cpuSeconds(): number {
    return this.#group.cpuSeconds();
  }

  /** Seconds for which the group's processes stalled because the quota was used up. */
  get throttledSeconds(): number {
    return this.#group.throttledSeconds();
  }

  /** Removes the group after moving out its remaining processes: helpers of a test's worker began there. */
  remove(): void {
    for (const directory of this.#group.directories) {
      const pids = readFileSync(join(directory, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean);
      for (const pid of pids.map(Number)) this.leave(pid);
      rmdirSync(directory);
    }
  }

  /** Moves a process out of the group. */
  leave(pid: number): void {
    for (const directory of this.#group.directories) writeFileSync(join(directory, '..', 'cgroup.procs'), String(pid));
  }
}

function number(file: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(readFileSync(file, 'utf8'))?.[1] ?? 0);
}

function first(name: string, cores: number, weight: number): Group {
  const mounts = readFileSync('/proc/mounts', 'utf8');
  const at = (controller: string) => {
    const found = new RegExp(`^\\S+ (\\S+) cgroup \\S*\\b${controller}\\b(?!acct|set)`, 'm').exec(mounts)?.[1];
    if (found === undefined) throw new Error(`no control groups with the controller ${controller} are mounted here`);
    return join(found, name);
  };
  const [cpu, account] = [at('cpu'), at('cpuacct')];
  const directories = [...new Set([cpu, account])];
  for (const directory of directories) mkdirSync(directory);
  writeFileSync(join(cpu, 'cpu.cfs_period_us'), String(PERIOD_US));
  writeFileSync(join(cpu, 'cpu.cfs_quota_us'), Number.isFinite(cores) ? String(Math.round(cores * PERIOD_US)) : '-1');
  writeFileSync(join(cpu, 'cpu.shares'), String(SHARES * weight));
  return {
    directories,
    cpuSeconds: () => Number(readFileSync(join(account, 'cpuacct.usage'), 'utf8')) / 1e9,
    throttledSeconds: () => number(join(cpu, 'cpu.stat'), 'throttled_time') / 1e9,
  };
}

function second(name: string, cores: number, weight: number): Group {
  const directory = join(ROOT_V2, name);
  // In the root group of a container this fails with EBUSY, because that group has processes. The controller may be
  // enabled already.
  spawnSync('sh', ['-c', `echo +cpu > ${ROOT_V2}/cgroup.subtree_control`]);
  mkdirSync(directory);
  try {
    writeFileSync(
      join(directory, 'cpu.max'),
      `${Number.isFinite(cores) ? Math.round(cores * PERIOD_US) : 'max'} ${PERIOD_US}`,
    );
    writeFileSync(join(directory, 'cpu.weight'), String(Math.min(WEIGHT_MAX, WEIGHT * weight)));
  } catch (cause) {
    rmdirSync(directory);
    throw new Error('the controller cpu of control groups is not delegated here', { cause });
  }
  const stat = join(directory, 'cpu.stat');
  return {
    directories: [directory],
    cpuSeconds: () => number(stat, 'usage_usec') / 1e6,
    throttledSeconds: () => number(stat, 'throttled_usec') / 1e6,
  };
}

/** The result of the check of a login node. */
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import type { Platform } from '../../shared/release/release-manifest.ts';
import { gpuGres, isGpuSlice } from '../../shared/slurm/gpu-gres.ts';
import { takesJobs } from '../../shared/slurm/node-state.ts';
import { THIS_MACHINE } from '../host/host.ts';
import { UpError } from '../up-error.ts';
import { PROGRAMS, SETUP_FAILED, SITE_MARK } from './check-script.ts';
import { type FoundEngine, foundEngines } from './found-engines.ts';

/** Nodes of one partition with the same kind of GPU. */
export interface GpuPool {
  partition: string;
  isDefault: boolean;
  /** Slurm's name of the GPUs; undefined if the site names none. */
  gpu: string | undefined;
  /** The most GPUs of a node. */
  gpusPerNode: number;
  /** Number of nodes that start jobs now. */
  openNodes: number;
  /** Longest time of a job in milliseconds; undefined: unlimited. */
  longestMs: number | undefined;
  /** Address of one of the nodes, as the login node reaches it. */
  address: string;
}

export interface LoginNode {
  platform: Platform;
  /** The login node's name for itself. */
  host: string;
  home: string;
  user: string;
  freeKib: number | undefined;
  programs: ReadonlySet<(typeof PROGRAMS)[number]>;
  /** Engines outside of the PATH; empty if one is on it. */
  engines: readonly FoundEngine[];
  /** The user's directory for large files; undefined: the site names none. */
  scratch: string | undefined;
  /** True if the user has a cache of weights. */
  hasCache: boolean;
  partitions: readonly string[];
  pools: readonly GpuPool[];
  accounts: readonly string[];
  /** Digests of the agents that are installed. */
  agents: readonly string[];
}

const PLATFORMS: Readonly<Record<string, Platform>> = {
  'Linux x86_64': 'linux-x64',
  'Linux aarch64': 'linux-arm64',
};

/** @throws UpError if the machine cannot be used */
export function parseSite(sshHost: string, out: string): LoginNode {
  const failed = out.split('\n').find((line) => line.startsWith(SETUP_FAILED));
  if (failed !== undefined)
    throw new UpError(
      `This line of --setup fails on ${sshHost}: ${failed.slice(SETUP_FAILED.length)}`,
      `Try it there: ssh ${sshHost}, then the line.`,
    );
  const lines = out.slice(out.indexOf(SITE_MARK)).split('\n');
  if (lines[0] !== SITE_MARK)
    throw new UpError(
      `${sshHost} ran the check, but its answer is missing.`,
      'A file such as ~/.bashrc there may end the shell early.',
    );
  const all = (name: string) =>
    lines.flatMap((line) => (line.startsWith(`${name}=`) ? [line.slice(name.length + 1).trim()] : [])).filter(Boolean);
  const [system = ''] = all('system');
  // On this machine, the agent runs in the Node of this process.
  const platform = sshHost === THIS_MACHINE ? 'linux-x64' : PLATFORMS[system];
  if (platform === undefined)
    throw new UpError(
      `${sshHost} is ${system}: there is no agent for it.`,
      `The agent runs on ${Object.keys(PLATFORMS).join(' and ')}.`,
    );
  const nodes = all('node').map((line) => line.split('|'));
  const programs = PROGRAMS.filter((name) => all('program').includes(name));
  return {
    platform,
    host: sshHost === THIS_MACHINE ? THIS_MACHINE : (all('host')[0] ?? sshHost),
    home: all('home')[0] ?? '',
    user: all('user')[0] ?? '',
    freeKib: leastOf([...all('free_kib'), ...all('quota_kib')]),
    programs: new Set(programs),
    engines: foundEngines(all),
    scratch: all('scratch')[0],
    hasCache: all('cache').length > 0,
    partitions: [...new Set(nodes.map(([name = '']) => name.replace(/\*$/, '')))],
    pools: poolsOf(nodes),
    accounts: all('account'),
    agents: all('agent'),
  };
}

/** The least of some numbers; undefined if there is none. */
function leastOf(texts: readonly string[]): number | undefined {
  const numbers = texts.filter((text) => /^\d{1,15}$/.test(text)).map(Number);
  return numbers.length === 0 ? undefined : Math.min(...numbers);
}

function poolsOf(nodes: readonly string[][]): GpuPool[] {
  const pools = new Map<string, GpuPool>();
  for (const [name = '', limit = '', gres = '', state = '', address = ''] of nodes)
    for (const { type, count } of gpuGres(gres)) {
      if (count === 0 || (type !== undefined && isGpuSlice(type))) continue;
      const partition = name.replace(/\*$/, '');
      const key = `${partition}|${type}`;
      const known = pools.get(key);
      const isOpen = takesJobs(state) ? 1 : 0;
      pools.set(key, {
        partition,
        isDefault: name.endsWith('*'),
        gpu: type,
        gpusPerNode: Math.max(count, known?.gpusPerNode ?? 0),
        openNodes: (known?.openNodes ?? 0) + isOpen,
        longestMs: timeLimitMs(limit),
        // A node that starts jobs has a network; one that is down may have none.
        address: isOpen === 1 || known === undefined ? address : known.address,
      });
    }
  return [...pools.values()];
}

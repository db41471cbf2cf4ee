/** The launcher of a real batch system with one pool of two GPUs per node, and a job for it. */
import { parseConfig } from '../../factory/config/read-config.ts';
import type { Launcher, Submission } from '../../factory/launchers/launcher.ts';
import { makeLauncher } from '../../factory/launchers/make-launcher.ts';
import type { RunCommand } from '../../node/command-runner.ts';

export const PREFIX = 'otela-pool--';

interface Site {
  launcher: string;
  run: RunCommand;
  minutes: number;
  /** Additional lines of the cluster, and of its pool. */
  cluster?: string;
  pool?: string;
  /** `%j` stands for the job's id. */
  log: string;
}

export function launcherCase({ launcher: system, run, minutes, cluster: ofCluster = '', pool: more = '', log }: Site): {
  launcher: Launcher;
  submission: Submission;
} {
  const read = parseConfig(`factory = "pool"
gateway = "https://otela.example.org"
token_file = "token"
state = "state"
[clusters.crc]
launcher = "${system}"
${ofCluster}
[[clusters.crc.pools]]
name = "gpu"
gpu = "A100"
gpus_per_node = 2
time = "00:${minutes}:00"
${more}
[recipes.r]
weights = "w"
[[recipes.r.engines]]
gpu = ["A100"]
gpus = 1
engine = "vllm"
[models.m]
recipe = "r"
`);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const [cluster] = read.config.clusters;
  const [pool] = cluster?.pools ?? [];
  if (cluster === undefined || pool === undefined) throw new Error('no pool');
  const launcher = makeLauncher(cluster, read.config, run);
  const body = `echo "job ${launcher.jobId} begins"\nsleep 300\n`;
  return { launcher, submission: { name: `${PREFIX}0123456789ab-1`, count: 1, pool, gpus: 1, body, log } };
}

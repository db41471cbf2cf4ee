/** A launcher whose commands are answered by the test. */
import { parseConfig } from '../../../factory/config/read-config.ts';
import type { ClusterConfig } from '../../../factory/config/schema.ts';
import type { Launcher, Submission } from '../../../factory/launchers/launcher.ts';
import { makeLauncher } from '../../../factory/launchers/make-launcher.ts';
import type { CommandResult, RunCommand } from '../../../node/command-runner.ts';
import { CONFIG } from './config-text.ts';

export const NAME = 'otela-pool--0123456789ab-1';
export const PREFIX = 'otela-pool--';

export function clusterOf(launcher: ClusterConfig['launcher']): ClusterConfig {
  const read = parseConfig(CONFIG);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const [cluster] = read.config.clusters;
  if (cluster === undefined) throw new Error('no cluster');
  return { ...cluster, launcher };
}

export const done = (out: string, code = 0, errors = ''): CommandResult => ({ kind: 'done', code, out, errors });

export function launcherWith(
  kind: ClusterConfig['launcher'],
  answer: (file: string, args: readonly string[], input: string) => CommandResult,
  more: Partial<ClusterConfig> = {},
): { launcher: Launcher; calls: string[] } {
  const calls: string[] = [];
  const run: RunCommand = async (file, args, input = '') => {
    calls.push([file, ...args].join(' '));
    return answer(file, args, input);
  };
  return { launcher: makeLauncher({ ...clusterOf(kind), ...more }, { gateway: 'http://gateway' }, run), calls };
}

export const submission = (kind: ClusterConfig['launcher'], more: Partial<Submission> = {}): Submission => {
  const [pool] = clusterOf(kind).pools;
  if (pool === undefined) throw new Error('no pool');
  return {
    name: NAME,
    count: 1,
    pool,
    gpus: 2,
    body: 'exec otela-agent start -- x\n',
    log: "/state/it's/alps-%j.log",
    ...more,
  };
};

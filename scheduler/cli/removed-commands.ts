/** Refuses removed commands and flags, which started replicas. The factory starts them now. */
import { UsageError } from '../../shared/command-line/index.ts';

export const FACTORY_ACTS =
  'otela-factory starts and ends replicas; give it a plan by `otela-plan watch --plan FILE` and [plan] in factory.toml';

const FLAGS: Readonly<Record<string, string>> = {
  '--yes': FACTORY_ACTS,
  '--state': `--plan FILE is the file of the plan: ${FACTORY_ACTS}`,
  '--retry': 'otela-factory tries failed starts again; `rest` in factory.toml says how often',
  '--drain': 'otela-factory drains a replica before it ends it',
  '--slurm': FACTORY_ACTS,
  '--inventory': `watch plans with the nodes of the network: ${FACTORY_ACTS}`,
  '--weights':
    'set weights by PUT /admin/routing/MODEL, or let `otela-plan watch --forecast --publish` set them by kind',
  '--agents': 'omit it: the planner always uses idle agents',
};

/** @throws UsageError with the command to run instead */
export function refuseRemoved(argv: readonly string[]): void {
  for (const word of argv) {
    const instead = FLAGS[word.split('=')[0] ?? ''];
    if (instead !== undefined) throw new UsageError(`${word} was removed: ${instead}`);
  }
}

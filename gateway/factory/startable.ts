import type { FactoryReport, LAUNCHERS, ModelReport } from '../../shared/factory/exchange.ts';
import type { KnownReport } from './reports.ts';

/** A model that a factory starts when a request wants it, and how far that has come. */
export interface StartableModel {
  id: string;
  provider: string;
  state: Exclude<ModelReport['state'], 'ready'>;
  /** From `now` of the call that gave it; undefined: not known. */
  readyInMs: number | undefined;
  /** Of the weights, 0 to 100. */
  percent: number | undefined;
  /** Of a job that waits: which scheduler it waits in. */
  where: string | undefined;
  /** Projects and keys whose requests may start it; undefined: all. */
  wake: { projects: readonly string[]; keys: readonly string[] } | undefined;
}

/** A month: whatever a factory says beyond it is no estimate. */
const ESTIMATE_MAX_MS = 30 * 86_400_000;

/** How people call what the launchers of the contract are named after. */
const SCHEDULERS: Readonly<Record<(typeof LAUNCHERS)[number], string | undefined>> = {
  slurm: 'Slurm',
  kubernetes: 'Kubernetes',
  'grid-engine': 'Grid Engine',
  htcondor: 'HTCondor',
  pbs: 'PBS',
  lsf: 'LSF',
  flux: 'Flux',
  agents: undefined,
};

/** The models of these reports that no job serves yet. */
export function startableModels(reports: readonly KnownReport[], now: number): StartableModel[] {
  return reports.flatMap((report) =>
    report.models.flatMap((model) => {
      const { id, state, estimate_ms: estimate, progress, wake } = model;
      if (state === 'ready') return [];
      const left = estimate === undefined ? undefined : Math.max(0, estimate - (now - report.at));
      return [
        {
          id,
          provider: report.provider,
          state,
          // 0: it takes longer than was thought.
          readyInMs: left === undefined || left === 0 || left > ESTIMATE_MAX_MS ? undefined : left,
          percent: progress === undefined ? undefined : Math.round(progress * 100),
          where: state === 'queued' ? schedulerOf(report, id) : undefined,
          wake,
        },
      ];
    }),
  );
}

function schedulerOf({ jobs, clusters }: Pick<FactoryReport, 'jobs' | 'clusters'>, model: string): string | undefined {
  const [pending] = jobs.filter((job) => job.model === model && job.state === 'pending');
  const cluster =
    clusters.find(({ id }) => id === pending?.cluster) ?? (clusters.length === 1 ? clusters[0] : undefined);
  return Object.entries(SCHEDULERS).find(([id]) => id === cluster?.launcher)?.[1];
}

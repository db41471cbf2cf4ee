import { FUNCTIONS_MODEL } from '../../shared/batch/function-context.ts';
import type { FactoryReport, LAUNCHERS, ModelReport } from '../../shared/factory/factory-exchange.ts';
import type { KnownReport } from './factory-reports.ts';

/** A model that an autoscaler starts when a request needs it, and the progress of its start. */
export interface StartableModel {
  id: string;
  provider: string;
  state: Exclude<ModelReport['state'], 'ready'>;
  /**
   * Estimated milliseconds until the model is ready, counted from the moment at which this list was made. Undefined:
   * unknown.
   */
  readyInMs: number | undefined;
  /** Share of the weights that is loaded, 0 to 100. Undefined: unknown. */
  percent: number | undefined;
  /** Name of the scheduler in which the job waits. Undefined: the job does not wait. */
  where: string | undefined;
  /** Projects and keys whose requests may start the model. Undefined: all requests. */
  wake: { projects: readonly string[]; keys: readonly string[] } | undefined;
}

/** An estimate above a month is not plausible and is ignored. */
const ESTIMATE_MAX_MS = 30 * 86_400_000;

/** Display names of launchers. */
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

/** Returns the models of these reports that no job serves yet. */
export function startableModels(reports: readonly KnownReport[], now: number): StartableModel[] {
  return reports.flatMap((report) =>
    report.models.flatMap((model) => {
      const { id, state, estimate_ms: estimate, progress, wake } = model;
      // No client requests functions like a model, so lists of models do not contain them.
      if (state === 'ready' || id === FUNCTIONS_MODEL) return [];
      const left = estimate === undefined ? undefined : Math.max(0, estimate - (now - report.at));
      return [
        {
          id,
          provider: report.provider,
          state,
          // If `left` is 0, the start already takes longer than estimated, so the time is unknown.
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

/** A mock factory's report on an ordinary day, with everything that its page shows. */
import type { FactoryReport } from '../../shared/factory/factory-exchange.ts';
import { coldModel } from './factory.ts';

const MINUTE_MS = 60_000;

/** `now`: milliseconds since 1970. */
export function ordinaryDay(now: number): Partial<FactoryReport> {
  const at = (ms: number) => new Date(ms).toISOString();
  const day = Array.from({ length: 288 }, (_, n) => {
    // Few GPUs at night, many in the afternoon.
    const wanted = Math.round(6 + 5 * Math.sin(((n - 90) / 288) * 2 * Math.PI));
    const pending = n % 24 < 4 ? 2 : 0;
    const point = { running: wanted, ready: Math.max(0, wanted - 1), pending, idle: 16 - wanted, waiting: pending };
    return { at: at(now - (288 - n) * 5 * MINUTE_MS), ...point };
  });
  const models = [
    coldModel('lab/asleep', { estimate_ms: 240_000 }),
    coldModel('lab/waking', { state: 'loading', running: 1, progress: 0.4, estimate_ms: 90_000 }),
    coldModel('lab/broken', { state: 'resting', reason: 'Its engine failed three times: CUDA out of memory.' }),
    coldModel('lab/busy', { state: 'ready', running: 2, ready: 2, max: 4, pending: 1, reason: 'Requests wait.' }),
  ];
  const common = { cluster: 'alps', gpus: 4, gpu: 'GH200' };
  const jobs: FactoryReport['jobs'] = [
    { ...common, id: '1001', model: 'lab/busy', state: 'ready', since_ms: 3_600_000 },
    { ...common, id: '1002', model: 'lab/waking', state: 'loading', since_ms: 60_000 },
    { ...common, id: '1003', model: 'lab/busy', state: 'pending', since_ms: 30_000, reason: 'Priority' },
    {
      ...{ ...common, id: '990', model: 'lab/broken', state: 'failed', since_ms: 600_000 },
      reason: 'Its engine failed.',
      log_tail: 'torch.OutOfMemoryError: CUDA out of memory.',
    },
  ];
  const clusters = [
    { id: 'alps', launcher: 'slurm', reachable: true, pending: 1, running: 3, idle_gpus: 5 },
    { id: 'polaris', launcher: 'pbs', reachable: false, reason: 'qstat timed out', pending: 0, running: 0 },
  ];
  const decisions = [
    { at: at(now - 10 * MINUTE_MS), model: 'lab/broken', text: 'Starts no more: three jobs failed.' },
    { at: at(now - MINUTE_MS), model: 'lab/waking', text: 'Starts a job: a request waits for it.' },
  ];
  return { models, jobs, clusters, decisions, day };
}

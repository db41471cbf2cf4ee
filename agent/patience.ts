import { Patience } from '../shared/patience/patience.ts';
import { after } from './after.ts';

/** How long this process waits for others. Deadlines are set and judged by `patience.now()`, waits are ended by `patience.after`. */
export const patience = new Patience({
  now: () => performance.now(),
  after,
  every: (ms, ring) => {
    const timer = setInterval(ring, ms).unref();
    return () => clearInterval(timer);
  },
});

/** As `AbortSignal.timeout`, by this process's patience. */
export function patientSignal(ms: number): AbortSignal {
  const controller = new AbortController();
  patience.after(ms, () => controller.abort(new DOMException(`no answer within ${ms} ms`, 'TimeoutError')));
  return controller.signal;
}

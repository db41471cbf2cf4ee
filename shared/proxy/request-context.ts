import type { DispatchContext } from '../attempts/dispatch-context.ts';
import type { InBandErrorDetector } from '../attempts/in-band-error-detector.ts';
import type { StageTimer } from '../openai/request-stage-timer.ts';
import type { QueueEntry } from '../queue/queue-entry.ts';
import type { Priority } from '../routing/fair-queue.ts';
import type { HeldReservation, Host, RequestInfo, RequestRecorder, Route } from './proxy-host.ts';
import type { ProxyRequest } from './proxy-http-types.ts';
import type { ResponseWatch } from './response-watch.ts';

/** A request after all checks, in the form that queue, dispatch and response read. */
export interface RequestContext<C> extends DispatchContext {
  readonly host: Host<C>;
  readonly request: ProxyRequest;
  readonly caller: C;
  readonly info: RequestInfo<C>;
  readonly record: RequestRecorder;
  readonly route: Route;
  readonly entry: QueueEntry;
  /** Maximum wait for a node in milliseconds; 0: the request does not wait. */
  readonly waitMs: number;
  readonly reservation: HeldReservation | undefined;
  /** Number of attempts that may have reached an engine. The usage of each is reported and settled. */
  readonly engineAttempts: { count: number };
  readonly priority: Priority;
  /** True if the stream continues on another node when it breaks. */
  readonly continues: boolean;
  /** When the request was admitted, by `HostClock.steadyNow`. */
  readonly admittedAt: number;
  readonly timing: StageTimer;
  readonly inBand: InBandErrorDetector;
  /** Absent if the host keeps nothing of the response. */
  readonly watch?: ResponseWatch<C> | undefined;
}

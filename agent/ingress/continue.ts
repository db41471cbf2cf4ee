/** Streams that go on where their node is gone: the ingress's side of `shared/resume/resumable.ts`. */
import { randomUUID } from 'node:crypto';
import { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { resumable } from '../../shared/resume/resumable.ts';
import type { ResumeHost } from '../../shared/resume/successor.ts';
import { RETRIES_MAX } from '../../shared/routing/attempts.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import { hasAlike, needsOf, unlike } from '../../shared/routing/unlike.ts';
import type { ByteBudget } from '../../shared/upstream/byte-budget.ts';
import type { ResponseStream } from '../../shared/upstream/response.ts';
import { after } from '../after.ts';
import { asking, type Choice, type Delivery, type Errand } from './hand-over.ts';
import type { Queued, Queues } from './queues.ts';
import type { Delivery as Outgoing } from './respond.ts';

/** What is used without anybody asking for it leaves no record. */
export const NO_RECEIPT = '';

interface Going {
  errand: Errand;
  /** How the request waits for a node, should it have to. */
  waiting: Omit<Queued<Delivery>, 'waiter' | 'tryNodes'>;
  nodes: NodeIndex;
  trust: Trust;
  budget: ByteBudget;
  queues: Queues;
  pingMs: number;
}

/** An answer that outlives its node, where that can be. */
export function goingOn(delivery: Delivery, going: Going): Outgoing {
  const { errand, budget } = going;
  const share = budget.share();
  errand.whenLeft(() => share.release());
  return resumable(delivery, errand, meansOf(delivery, going), share);
}

function meansOf(
  { choice }: Delivery,
  { errand, waiting, nodes, trust, queues, pingMs }: Going,
): ResumeHost<Choice, ResponseStream> {
  const { model } = errand.intake;
  const first = nodes.get(choice.node.session)?.models.find(({ id }) => id === model);
  const mayQueue = queues.longestWait(true) > 0;
  const hopes = () => hasAlike(nodes.model(model), model, first, (entry) => isTrusted(trust, entry));
  const newWaiter = (more: { queues: boolean }) =>
    new QueueEntry({
      busyNodes: queues.busyNodes,
      hopes,
      repeatable: () => true,
      retriesMax: RETRIES_MAX,
      begun: true,
      ...more,
    });
  /** Of the search that is on: a stream has one at a time. */
  let waiter = newWaiter({ queues: mayQueue });
  return {
    upstream: (changed) => {
      const own = { ...errand, ...changed };
      // How an engine reads a text is asked on the way, and counts as no attempt.
      return asking({ ...own, waiter: changed.endpoint === errand.endpoint ? waiter : newWaiter({ queues: false }) });
    },
    unlike: () => unlike(nodes.model(model), model, first),
    unpaid: () => ({ name: randomUUID(), receipt: NO_RECEIPT }),
    inTurn: (tryNodes, rejected) => {
      waiter = newWaiter({ queues: mayQueue });
      // Turns that it can make nothing of are not to hold up who could.
      const scope = () => `${waiting.scope()}${needsOf(first)} ${rejected().join(' ')}`.trimEnd();
      return queues.inTurn({ ...waiting, scope, waiter, tryNodes });
    },
    busy: () => waiter.busy.length > 0,
    pingMs,
    after,
  };
}

/** Streams that go on where their node is gone: the gateway's side of `shared/resume/resumable.ts`. */

import { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { resumable } from '../../shared/resume/resumable.ts';
import type { ResumeHost } from '../../shared/resume/successor.ts';
import { isTrusted } from '../../shared/routing/trust.ts';
import { hasAlike, needsOf, unlike } from '../../shared/routing/unlike.ts';
import { ByteBudget } from '../../shared/upstream/byte-budget.ts';
import { receiptOf } from '../accounts/receipt.ts';
import { after } from '../after.ts';
import type { HttpRequest } from '../http.ts';
import { busyNodes } from '../queue/busy.ts';
import { inTurn, longestWait, type QueuedRequest } from '../queue/in-turn.ts';
import { snapshots, type View } from '../registry/snapshot.ts';
import type { Answer } from './answer.ts';
import { asking, type Choice, type Delivery, type Errand, forModel } from './hand-over.ts';
import { type Delivery as Outgoing, PING_MS } from './respond.ts';

/** Bodies and texts of streams that may have to go on, of one isolate. */
const KEPT_MAX_BYTES = 16 * 1024 * 1024;
const kept = new ByteBudget(KEPT_MAX_BYTES);

/** Whether a broken stream of this request may be continued: its own word counts before its key's. */
export function allowsContinuing(request: HttpRequest, { resumes }: { resumes: boolean }): boolean {
  const said = request.headers.get('x-otela-resume');
  return said === null ? resumes : said === '1';
}

/** How the request waits for a node, should it have to. */
export type Waiting = Omit<QueuedRequest<Delivery>, 'waiter' | 'tryNodes' | 'ifLeft'>;

/** An answer that outlives its node, where that can be. */
export async function continuing(pending: Promise<Delivery>, errand: Errand, waiting: Waiting): Promise<Outgoing> {
  const delivery = await pending;
  const share = kept.share();
  errand.leaving.on(() => share.release());
  const asked = forModel(errand, delivery.choice);
  return resumable(delivery, asked, meansOf(delivery, asked, waiting), share);
}

function meansOf({ choice }: Delivery, errand: Errand, waiting: Waiting): ResumeHost<Choice, Answer> {
  const { view, env, ctx, trust } = errand;
  const { model } = choice;
  const route = { ...errand.route, fallbacks: [] };
  const first = view.nodes.get(choice.node.session)?.models.find(({ id }) => id === model);
  const { maxRetries: retriesMax } = view.settings.retries;
  const queues = longestWait(waiting.settings, true) > 0;
  const hopes = () => hasAlike(view.model(model), model, first, (entry) => isTrusted(trust, entry));
  const newWaiter = (more: { queues: boolean }) =>
    new QueueEntry({ busyNodes, hopes, repeatable: () => true, retriesMax, begun: true, ...more });
  /** Of the search that is on: a stream has one at a time. */
  let waiter = newWaiter({ queues });
  return {
    upstream: (changed) => {
      const own = { ...errand, ...changed, route, admittedAt: Date.now() };
      if (changed.endpoint === errand.endpoint) return asking({ ...own, waiter });
      // How an engine reads a text is asked on the way, and counts as no attempt.
      return asking({ ...own, waiter: newWaiter({ queues: false }), note: UNNOTED });
    },
    unlike: () => unlike(view.model(model), model, first),
    unpaid: () => ({ name: crypto.randomUUID(), receipt: receiptOf('', model, true) }),
    inTurn: (tryNodes, rejected) => {
      waiter = newWaiter({ queues });
      return inTurn({
        ...waiting,
        model,
        // Turns that it can make nothing of are not to hold up who could.
        scope: () => `${waiting.scope()}${needsOf(first)} ${rejected().join(' ')}`.trimEnd(),
        waiter,
        ifLeft: () => undefined, // what its first node gave is on record
        tryNodes: async () => {
          await snapshots.get(env, ctx, Date.now(), (now) => serves(now, model));
          return tryNodes();
        },
      });
    },
    busy: () => waiter.busy.length > 0,
    pingMs: PING_MS,
    after,
  };
}

function serves(view: View, model: string): boolean {
  return view.model(model)?.all.some(({ state }) => state === 'SERVING') ?? false;
}

const UNNOTED: Errand['note'] = { attempt: () => {} };

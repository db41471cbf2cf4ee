/** Streams that go on where their node is gone: the gateway's side of `shared/asking/continued.ts`. */
import { continued, type Share } from '../../shared/asking/continued.ts';
import type { Means } from '../../shared/asking/successor.ts';
import { unlike } from '../../shared/routing/unlike.ts';
import { Waiter } from '../queue/waiter.ts';
import { snapshots } from '../registry/snapshot.ts';
import { receiptOf } from '../usage/receipt.ts';
import type { Answer } from './answer.ts';
import { asking, type Choice, type Delivery, type Errand, forModel } from './hand-over.ts';
import type { Delivery as Outgoing } from './respond.ts';

/** Bodies and texts of streams that may have to go on, of one isolate. */
const KEPT_MAX_BYTES = 16 * 1024 * 1024;

/** A stream whose node is gone looks so often whether one has come. */
const LOOKS_MAX = 20;
/** Where nodes are there and have no place: a minute, less than any proxy lets a stream be silent. */
const BUSY_LOOKS_MAX = 240;
const LOOK_MS = 250;

/** Whether a broken stream of this request may be continued: its own word counts before its key's. */
export function allowsContinuing(request: Request, { resumes }: { resumes: boolean }): boolean {
  const said = request.headers.get('x-otela-resume');
  return said === null ? resumes : said === '1';
}

/** An answer that outlives its node, where that can be. */
export async function continuing(
  pending: Promise<Delivery>,
  errand: Errand,
  ctx: Pick<ExecutionContext, 'waitUntil'>,
): Promise<Outgoing> {
  const delivery = await pending;
  const share = new KeptShare();
  errand.signal.addEventListener('abort', () => share.release());
  const asked = forModel(errand, delivery.choice);
  return continued(delivery, asked, meansOf(delivery, asked, ctx), share);
}

function meansOf(
  { choice }: Delivery,
  errand: Errand,
  ctx: Pick<ExecutionContext, 'waitUntil'>,
): Means<Choice, Answer> {
  const { view, env } = errand;
  const { model } = choice;
  const route = { ...errand.route, fallbacks: [] };
  const first = view.nodes.get(choice.node.session)?.models.find(({ id }) => id === model);
  const { maxRetries: retriesMax } = view.settings.retries;
  return {
    asking: (changed) => {
      const waiter = new Waiter({ queues: false, hopes: () => false, retriesMax });
      // How an engine reads a text is asked on the way, and counts as no attempt.
      const note = changed.endpoint === errand.endpoint ? errand.note : UNNOTED;
      return asking({ ...errand, ...changed, route, waiter, note, admittedAt: Date.now() });
    },
    unlike: () => unlike(view.model(model), model, first),
    unpaid: () => ({ name: crypto.randomUUID(), receipt: receiptOf('', model, true) }),
    pause: async (before, why) => {
      if (before >= (why === 'busy' ? BUSY_LOOKS_MAX : LOOKS_MAX)) return false;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      await snapshots.get(env, ctx, Date.now(), () => true);
      return true;
    },
  };
}

const UNNOTED: Errand['note'] = { attempt: () => {} };

/** Bytes that this isolate keeps now. */
let kept = 0;

class KeptShare implements Share {
  #held = 0;
  #released = false;

  grow(bytes: number): boolean {
    if (bytes <= this.#held || this.#released) return true;
    if (kept + bytes - this.#held > KEPT_MAX_BYTES) return false;
    kept += bytes - this.#held;
    this.#held = bytes;
    return true;
  }

  release(): void {
    kept -= this.#held;
    this.#held = 0;
    this.#released = true;
  }
}

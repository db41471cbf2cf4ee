/** Streams that go on where their node is gone: the ingress's side of `shared/asking/continued.ts`. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Answer } from '../../shared/asking/answer.ts';
import { continued, type Share } from '../../shared/asking/continued.ts';
import type { Means } from '../../shared/asking/successor.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import { unlike } from '../../shared/routing/unlike.ts';
import type { Budget } from './budget.ts';
import { asking, type Choice, type Delivery, type Errand } from './hand-over.ts';
import type { Delivery as Outgoing } from './respond.ts';

/** A stream whose node is gone looks so often whether one has come. */
const LOOKS_MAX = 20;
/** Where nodes are there and have no place: a minute, less than any proxy lets a stream be silent. */
const BUSY_LOOKS_MAX = 240;
const LOOK_MS = 250;

/** What is used without anybody asking for it leaves no record. */
export const NO_RECEIPT = '';

export interface Going {
  errand: Errand;
  nodes: NodeIndex;
  budget: Budget;
}

/** An answer that outlives its node, where that can be. */
export function goingOn(delivery: Delivery, { errand, nodes, budget }: Going): Outgoing {
  const share = shareOf(budget);
  errand.whenLeft(() => share.release());
  return continued(delivery, errand, meansOf(delivery, errand, nodes), share);
}

function meansOf({ choice }: Delivery, errand: Errand, nodes: NodeIndex): Means<Choice, Answer> {
  const { model } = errand.intake;
  const first = nodes.get(choice.node.session)?.models.find(({ id }) => id === model);
  const whenLeft = manyListeners(errand);
  return {
    asking: (changed) => asking({ ...errand, ...changed, whenLeft }),
    unlike: () => unlike(nodes.model(model), model, first),
    unpaid: () => ({ name: randomUUID(), receipt: NO_RECEIPT }),
    pause: async (before, why) => {
      if (before >= (why === 'busy' ? BUSY_LOOKS_MAX : LOOKS_MAX)) return false;
      await pause(LOOK_MS);
      return true;
    },
  };
}

/** A response warns of more than ten; here one is added for each question, each of which is bounded by the attempts. */
function manyListeners(errand: Errand): Errand['whenLeft'] {
  const calls: (() => void)[] = [];
  errand.whenLeft(() => {
    for (const call of calls) call();
  });
  return (call) => calls.push(call);
}

function shareOf(budget: Budget): Share {
  const share = budget.share();
  return {
    grow: (bytes) => {
      try {
        share.grow(bytes);
        return true;
      } catch {
        return false;
      }
    },
    release: () => share.release(),
  };
}

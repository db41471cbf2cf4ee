import { ApiError } from '../../shared/openai/errors.ts';
import type { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { tellsOfHang } from '../../shared/routing/attempts.ts';
import type { Breakers } from '../../shared/routing/breaker.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { type Choice, ended, started } from '../../shared/routing/choose.ts';
import type { AttemptBody, AttemptFailure, AttemptRequest } from '../../shared/upstream/attempt.ts';
import { AttemptError, apiErrorFor } from '../../shared/upstream/attempt-error.ts';
import * as loop from '../../shared/upstream/dispatch.ts';
import { type DispatchContext as CommonErrand, openingOf } from '../../shared/upstream/dispatch-context.ts';
import { bodyOf, isRepeatable } from '../../shared/upstream/parsed-request.ts';
import { type ResponseStream, type StartedResponse, startResponse } from '../../shared/upstream/response.ts';
import type { Attempt } from '../mesh/requests/attempt.ts';

/** All that handing over needs of a request. */
export interface Errand extends CommonErrand {
  choose(tried: ReadonlySet<string>): Choice | undefined;
  /** Why there was no choice from the start. */
  nobody(): ApiError;
  ask(session: string, request: AttemptRequest, body: AttemptBody): Attempt;
  /** The client left: nothing is asked for it any more. */
  left(): boolean;
  whenLeft(call: () => void): void;
  breakers: Breakers;
  /** Takes one more attempt from what all requests together may repeat. */
  mayRetry(): boolean;
  onFailure(node: Candidate, code: AttemptFailure): void;
  /** The node has nothing to do for this attempt any more. */
  onEnd(node: Candidate): void;
  /** What it tried, and whose turn it is. */
  waiter: QueueEntry;
}

export type { Choice } from '../../shared/routing/choose.ts';

export type Delivery = loop.UpstreamResponse<Choice, ResponseStream>;

/**
 * Tries nodes until one answers.
 * @throws ApiError when none did, AttemptError `cancelled` when the client left
 */
export function handOver(errand: Errand): Promise<Delivery> {
  return loop.dispatch(asking(errand));
}

export function asking(errand: Errand): loop.Upstream<Choice, ResponseStream> {
  const { breakers, waiter } = errand;
  let running: Attempt | undefined;
  let isProbe = false;
  errand.whenLeft(() => running?.cancel());
  return {
    choose: errand.choose,
    attempt: (choice, { number, acceptMs, movable, moved }) => {
      waiter.attempts = number;
      isProbe = breakers.started(choice.node.session, Date.now());
      started(choice);
      const opening = openingOf(errand, number, acceptMs, choice.model);
      const hang = { movable: movable && errand.intake.body.kind === 'kept', moved, model: choice.model };
      running = errand.ask(choice.node.session, { ...opening, ...hang }, bodyOf(errand.intake));
      return begun(running);
    },
    onFailure: ({ node }, code) => {
      waiter.onFailure(node.session, code, Date.now());
      if (tellsOfHang(code)) breakers.hangs(node.session, Date.now());
      errand.onFailure(node, code);
    },
    onEnd: (choice, ending) => {
      ended(choice, ending);
      breakers.ended(choice.node.session, ending, isProbe, Date.now());
      errand.onEnd(choice.node);
    },
    first: waiter.attempts + 1,
    retriesMax: waiter.retriesLeft,
    mayRetry: errand.mayRetry,
    repeatable: () => isRepeatable(errand.intake),
    left: errand.left,
    whenLeft: errand.whenLeft,
    refusal: (failure) => (failure === undefined ? errand.nobody() : told(failure)),
  };
}

async function begun(attempt: Attempt): Promise<StartedResponse<ResponseStream>> {
  return startResponse(await attempt.open());
}

/** Here the node's own words help: they say which flag of whose agent is in the way. */
function told(failure: AttemptError): ApiError {
  if (failure.code !== 'refused') return apiErrorFor(failure);
  const message = `The node that serves this model refuses: ${failure.message}.`;
  return new ApiError('no_capacity', message, { cause: failure });
}

/** Where a node said no, its own words are worth more than a wait. */
export function isRefusal({ cause }: ApiError): boolean {
  return cause instanceof AttemptError && cause.code === 'refused';
}

export function noCapacity(model: string): ApiError {
  return new ApiError('no_capacity', `No node that may be asked serves '${model}' at this moment; try again shortly.`);
}

import { ApiError } from '../../shared/openai/errors.ts';
import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { castsSuspicion, tellsOfHang } from '../../shared/routing/attempts.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { type Choice, choose, ended, started } from '../../shared/routing/choose.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { AttemptFailure } from '../../shared/upstream/attempt.ts';
import { apiErrorFor } from '../../shared/upstream/attempt-error.ts';
import * as loop from '../../shared/upstream/dispatch.ts';
import { type DispatchContext as CommonErrand, openingOf } from '../../shared/upstream/dispatch-context.ts';
import { bodyOf, isRepeatable, type ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { isEventStream, type StartedResponse, startResponse } from '../../shared/upstream/response.ts';
import { tokenBound } from '../../shared/upstream/token-bound.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import { installationSecret, knownInstallationSecret } from '../accounts/installation.ts';
import { proveOpening } from '../accounts/opening.ts';
import { takesBudget } from '../accounts/reasoning.ts';
import { timeoutsOf } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import type { Note } from '../observe/note.ts';
import type { View } from '../registry/snapshot.ts';
import * as nodeMemory from '../routing/node-memory.ts';
import { questionOf, type Route } from '../routing/route.ts';
import { askTunnel } from '../tunnel/ask.ts';
import { type AttemptBody, type AttemptRequest, BROKEN_OFF } from '../tunnel/attempt.ts';
import { Answer, type Ask } from './answer.ts';

/** All that handing over needs of a request. */
export interface Errand extends CommonErrand {
  view: View;
  route: Route;
  /** Who pays for it, where it is asked of that model. */
  receiptFor(model: string): string;
  /** Whose nodes may see it, on every attempt. */
  trust: Trust;
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** Tokens that an answer's reasoning may take, where the engine can be told. */
  reasoningBudget: number | undefined;
  /** Its project wants to know which prompts begin alike. */
  prefixes: boolean;
  /** Its streamed answer may leave by the object's outlet. */
  departs: boolean;
  /** Its streamed answer goes on at another node where it breaks off. */
  continues: boolean;
  /** When the request was complete and let in, in milliseconds since the epoch: what it waits from then on is on its record. */
  admittedAt: number;
  note: Pick<Note, 'attempt'>;
  /** A node did not answer. */
  onSuspect(session: string, code: AttemptFailure): void;
  /** What it tried, and whose turn it is. */
  waiter: QueueEntry;
  /** Aborted when the client leaves. */
  signal(): AbortSignal;
  leaving: ClientDisconnect;
}

export type { Choice } from '../../shared/routing/choose.ts';

export type Delivery = loop.UpstreamResponse<Choice, Answer>;

/** Tries nodes until one answers. @throws ApiError when none did */
export function handOver(errand: Errand): Promise<Delivery> {
  if (errand.waiter.attempts === 0) nodeMemory.retryBudget.asked(Date.now());
  return loop.dispatch(asking(errand));
}

export function asking(errand: Errand): loop.Upstream<Choice, Answer> {
  const { intake, leaving, waiter } = errand;
  const { settings } = errand.view;
  const among = (candidates: readonly Candidate[]) => waiter.among(candidates, Date.now());
  const question = () => {
    const isAvoided = nodeMemory.breakers.avoided(Date.now(), isRepeatable(intake));
    return questionOf(errand.route, errand.trust, { among, isAvoided });
  };
  let isProbe = false;
  return {
    choose: (tried) => choose(errand.view.nodes, question(), tried),
    attempt: (choice, attempt) => {
      waiter.attempts = attempt.number;
      isProbe = nodeMemory.breakers.started(choice.node.session, Date.now());
      started(choice);
      return tryNode(errand, choice, attempt);
    },
    onFailure: ({ node }, code) => {
      waiter.onFailure(node.session, code, Date.now());
      errand.note.attempt(code);
      if (castsSuspicion(code)) errand.onSuspect(node.session, code);
      if (tellsOfHang(code)) nodeMemory.breakers.hangs(node.session, Date.now());
    },
    onEnd: (choice, ending) => {
      ended(choice, ending);
      nodeMemory.ended(errand, choice.node.session, ending, isProbe);
    },
    first: waiter.attempts + 1,
    retriesMax: waiter.retriesLeft,
    mayRetry: () => nodeMemory.retryBudget.take(Date.now(), settings.retries.retryShare),
    repeatable: () => isRepeatable(intake),
    left: () => leaving.left,
    whenLeft: (call) => leaving.on(call),
    refusal: (failure) => (failure === undefined ? noCapacity(errand.route.request.model) : apiErrorFor(failure)),
  };
}

async function tryNode(errand: Errand, choice: Choice, attempt: loop.AttemptPlan): Promise<StartedResponse<Answer>> {
  if (errand.intake.fill !== undefined) await errand.intake.fill();
  const answer = await Answer.open(
    asker(forModel(errand, choice), choice, attempt),
    errand.leaving,
    errand.env.OBJECTS_STAY === 'on',
  );
  const { load } = answer.head;
  if (load !== undefined) errand.view.nodes.live.heard(choice.node.session, load);
  const whole = answer.whole !== undefined && !isEventStream(answer.head);
  const begun = whole ? { answer, chunks: [], complete: true } : await startResponse(answer);
  errand.note.attempt(answer.status);
  return begun;
}

/** The errand as it is where another model than the one it names first was found. */
export function forModel(errand: Errand, { model, request }: Pick<Choice, 'model' | 'request'>): Errand {
  if (model === errand.route.request.model) return errand;
  const route = { ...errand.route, request, fallbacks: [] };
  return { ...errand, route, receipt: errand.receiptFor(model), timeouts: timeoutsOf(errand.view.settings, model) };
}

function asker(errand: Errand, { node, model }: Choice, attempt: loop.AttemptPlan): Ask {
  const { number, acceptMs, moved } = attempt;
  const waitedMs = Date.now() - errand.admittedAt;
  // A body that streams is gone from here once the engine has it.
  const movable = attempt.movable && errand.intake.body.kind === 'kept';
  const more = {
    waitedMs,
    ...(movable && { movable }),
    ...(moved && { moved }),
    ...(errand.continues && { continues: true }),
    ...(errand.prefixes && { prefixes: true }),
    ...(errand.departs && { departs: true }),
  };
  const entry = errand.view.nodes.get(node.session);
  const budget = entry !== undefined && takesBudget(entry) ? errand.reasoningBudget : undefined;
  const context = entry?.models.find(({ id }) => id === model)?.context_length;
  const open = proven(
    errand,
    node.session,
    { ...openingOf(errand, number, acceptMs, model, budget), ...more },
    context,
  );
  return (what) => {
    if (what === 'why')
      return askTunnel(errand, node.session, { ...open, resume: true, answerOffset: BROKEN_OFF }, null);
    const claim = what !== undefined;
    const asked = claim
      ? { ...open, resume: true, departs: false, answerOffset: what, acceptMs: RESUME_WINDOW_MS }
      : open;
    return askTunnel(errand, node.session, asked, bodyFor(errand.intake, claim));
  };
}

/** The request, with what lets its node report on it after this gateway was restarted. `context`: of the model there, in tokens. */
function proven(errand: Errand, session: string, open: AttemptRequest, context: number | undefined): AttemptRequest {
  const bound = tokenBound({ ...errand.intake, endpoint: errand.endpoint }, context);
  const secret = knownInstallationSecret();
  if (secret === undefined) {
    // Only the operator's key from the environment is known before the secret is. Its request does not wait for D1.
    errand.ctx.waitUntil(installationSecret(errand.env).then(ignore, ignore));
    return { ...open, bound };
  }
  const { requestId, attempt, receipt, endpoint, streaming: streamed } = open;
  const opening = { session, requestId, attempt, receipt, endpoint, streamed, bound };
  return { ...open, bound, proof: proveOpening(secret, opening, Date.now()) };
}

function ignore(): void {}

/** The agent has what it had of a body that streams; one that is kept goes along, in case it never got it. */
function bodyFor(intake: ParsedRequest, claim: boolean): AttemptBody {
  return claim && intake.body.kind === 'opaque' ? null : bodyOf(intake);
}

export function noCapacity(model: string): ApiError {
  return new ApiError('no_capacity', `No node serves '${model}' at this moment; try again shortly.`);
}

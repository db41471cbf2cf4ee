import { type Begun, begin, isEventStream } from '../../shared/asking/answer.ts';
import * as loop from '../../shared/asking/hand-over.ts';
import {
  bodyOf,
  type Errand as CommonErrand,
  type Intake,
  isRepeatable,
  openingOf,
} from '../../shared/asking/intake.ts';
import { errorFor } from '../../shared/asking/path-error.ts';
import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { castsSuspicion } from '../../shared/routing/attempts.ts';
import { type Candidate, candidateOf, candidatesFor, suspectedFor } from '../../shared/routing/candidates.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Env } from '../env.ts';
import type { Note } from '../observe/note.ts';
import type { Waiter } from '../queue/waiter.ts';
import type { View } from '../registry/snapshot.ts';
import { breakers, ended, retryBudget } from '../routing/health.ts';
import { askTunnel } from '../tunnel/ask.ts';
import type { AttemptBody } from '../tunnel/attempt.ts';
import { Answer, type Ask } from './answer.ts';

/** All that handing over needs of a request. */
export interface Errand extends CommonErrand {
  view: View;
  /** Whose nodes may see it, on every attempt. */
  trust: Trust;
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** When the request was complete and let in, in milliseconds since the epoch: what it waits from then on is on its record. */
  admittedAt: number;
  note: Pick<Note, 'attempt'>;
  /** A node did not answer. */
  onSuspect(session: string): void;
  /** What it tried, and whose turn it is. */
  waiter: Waiter;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

export type Choice = loop.Choice<Candidate>;

export type Delivery = loop.Delivery<Choice, Answer>;

/** Tries nodes until one answers. @throws ApiError when none did */
export function handOver(errand: Errand): Promise<Delivery> {
  if (errand.waiter.attempts === 0) retryBudget.asked(Date.now());
  return loop.handOver(asking(errand));
}

export function asking(errand: Errand): loop.Asking<Choice, Answer> {
  const { intake, signal, waiter } = errand;
  const { settings } = errand.view;
  let isProbe = false;
  return {
    choose: (tried) => choose(errand, tried),
    attempt: ({ node }, attempt) => {
      waiter.attempts = attempt.number;
      isProbe = breakers.started(node.session, Date.now());
      return tryNode(errand, node, attempt);
    },
    onFailure: ({ node }, code) => {
      waiter.onFailure(node.session, code, Date.now());
      errand.note.attempt(code);
      if (castsSuspicion(code)) errand.onSuspect(node.session);
    },
    onEnd: ({ node }, ending) => ended(errand, node.session, ending, isProbe),
    first: waiter.attempts + 1,
    retriesMax: waiter.retriesLeft,
    mayRetry: () => retryBudget.take(Date.now(), settings.retries.retryShare),
    repeatable: () => isRepeatable(intake),
    left: () => signal.aborted,
    whenLeft: (call) => signal.addEventListener('abort', call),
    refusal: (failure) => (failure === undefined ? noCapacity(intake.model) : errorFor(failure)),
  };
}

function choose(errand: Errand, tried: ReadonlySet<string>): Choice | undefined {
  const { model } = errand.intake;
  const nodes = errand.view.model(model);
  const ready = candidatesFor(nodes, tried, errand.trust);
  const isAvoided = breakers.avoided(Date.now(), isRepeatable(errand.intake));
  const well = isAvoided === undefined ? ready : ready.filter((entry) => !isAvoided(entry));
  // A lost path often comes back within seconds (a deploy, a short cut): worth a wait when nobody else is there.
  const lost = () => suspectedFor(nodes, tried, errand.trust).filter(recent);
  const known = well.length > 0 ? well : ready.length > 0 ? ready : lost();
  const candidates = errand.waiter.among(known, tried.size, Date.now());
  const entry = candidates[Math.floor(Math.random() * candidates.length)];
  return (
    entry && { node: candidateOf(entry, errand.view.nodes.live), others: Math.max(ready.length, candidates.length) > 1 }
  );
}

/** Suspected a moment ago: its agent may be reconnecting. */
function recent({ updated_at }: RegistryEntry): boolean {
  return Date.now() - Date.parse(updated_at) < RESUME_WINDOW_MS;
}

async function tryNode(errand: Errand, node: Candidate, attempt: loop.Attempt): Promise<Begun<Answer>> {
  if (errand.intake.fill !== undefined) await errand.intake.fill();
  const answer = await Answer.open(asker(errand, node, attempt), errand.signal);
  const whole = answer.whole !== undefined && !isEventStream(answer.head);
  const begun = whole ? { answer, chunks: [], complete: true } : await begin(answer);
  errand.note.attempt(answer.status);
  return begun;
}

function asker(errand: Errand, node: Candidate, { number, acceptMs }: loop.Attempt): Ask {
  const waitedMs = Date.now() - errand.admittedAt;
  const open = { ...openingOf(errand, number, acceptMs), waitedMs };
  const { env, ctx, signal } = errand;
  const worker = { env, ctx, signal };
  return (offset) => {
    const claim = offset !== undefined;
    const asked = claim ? { ...open, resume: true, answerOffset: offset, acceptMs: RESUME_WINDOW_MS } : open;
    return askTunnel(worker, node.session, asked, bodyFor(errand.intake, claim));
  };
}

/** The agent has what it had of a body that streams; one that is kept goes along, in case it never got it. */
function bodyFor(intake: Intake, claim: boolean): AttemptBody {
  return claim && intake.body.kind === 'opaque' ? null : bodyOf(intake);
}

export function noCapacity(model: string): ApiError {
  return new ApiError('no_capacity', `No node serves '${model}' at this moment; try again shortly.`);
}

import type { AttemptBody, AttemptFailure, AttemptRequest } from '../../shared/asking/attempt.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { ATTEMPTS_MAX, isBusyStatus, mayTryAnother } from '../../shared/routing/attempts.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import { type AnswerHead, type Attempt, PathError } from '../mesh/requests/attempt.ts';
import type { Intake } from './body.ts';
import type { Choice } from './choose.ts';

/** An opening that is not acknowledged within this, dialling included, moves the request to another node, where there is one. */
const ACCEPT_MS = 1_000;

/** A unary answer up to this size goes out only when it is complete, so that a truncated one can be repeated elsewhere. */
const UNARY_HELD_BYTES = 1024 * 1024;

/** Nodes that say no, or that no channel can be had to, cost little and do not count as attempts; so many are passed over. */
const PASSED_MAX = 12;
const CHEAP: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>(['refused', 'unreachable']);

const FIRST_BYTE_MS = 900_000;
const STALL_MS = 120_000;

/** All that handing over needs of a request. */
export interface Errand {
  /** Names the request's streams: ours and random, never the client's request id, which two clients may send alike. */
  name: string;
  endpoint: Endpoint;
  intake: Intake;
  headers: HeaderList;
  choose(tried: ReadonlySet<string>): Choice | undefined;
  /** Why there was no choice from the start. */
  nobody(): ApiError;
  ask(session: string, request: AttemptRequest, body: AttemptBody): Attempt;
  /** The client left: nothing is asked for it any more. */
  left(): boolean;
  /** The attempt that runs now, to be cancelled when the client leaves. */
  onAttempt(attempt: Attempt): void;
  onFailure(node: Candidate, code: AttemptFailure): void;
}

/** An answer that may go out: its head is the engine's, `chunks` were read already. */
export interface Delivery {
  attempt: Attempt;
  head: AnswerHead;
  node: Candidate;
  attempts: number;
  chunks: Uint8Array[];
  complete: boolean;
}

/**
 * Tries nodes until one answers; nothing has gone out to the client before this returns.
 * @throws ApiError when none did, PathError `cancelled` when the client left
 */
export async function handOver(errand: Errand): Promise<Delivery> {
  const tried = new Set<string>();
  let failure: PathError | undefined;
  for (let reached = 1, passed = 0; reached <= ATTEMPTS_MAX && passed <= PASSED_MAX; ) {
    const choice = errand.choose(tried);
    if (choice === undefined || errand.left()) break;
    const { node } = choice;
    tried.add(node.session);
    const more = choice.others && reached < ATTEMPTS_MAX;
    try {
      const delivery = await tryNode(errand, node, tried.size, more);
      if (!more || !isBusyStatus(delivery.head.status)) return delivery;
      delivery.attempt.cancel();
      reached++;
    } catch (error) {
      if (!(error instanceof PathError)) throw error;
      failure = error;
      errand.onFailure(node, error.code);
      if (!mayTryAnother(error.code) || !replayable(errand)) break;
      if (CHEAP.has(error.code)) passed++;
      else reached++;
    }
  }
  if (errand.left()) throw new PathError('cancelled', 'the client left');
  throw failure === undefined ? errand.nobody() : errorFor(failure);
}

function replayable({ intake }: Errand): boolean {
  return intake.body.kind === 'kept' || intake.body.opaque.replayable;
}

async function tryNode(errand: Errand, node: Candidate, number: number, others: boolean): Promise<Delivery> {
  const attempt = errand.ask(node.session, openingOf(errand, number, others), bodyOf(errand.intake));
  errand.onAttempt(attempt);
  const head = await attempt.head();
  const read = isEventStream(head) ? await firstOf(attempt) : await readUpTo(attempt, UNARY_HELD_BYTES);
  return { attempt, head, node, attempts: number, ...read };
}

function openingOf({ name, endpoint, intake, headers }: Errand, attempt: number, others: boolean): AttemptRequest {
  return {
    requestId: name,
    attempt,
    resume: false,
    answerOffset: 0,
    endpoint: endpoint.id,
    headers,
    edits: intake.edits.map((edit) => ({ ...edit, insert: decoder.decode(edit.insert) })),
    streaming: intake.streaming,
    dropUsage: intake.edits.length > 0,
    firstByteMs: FIRST_BYTE_MS,
    stallMs: STALL_MS,
    receipt: intake.model,
    acceptMs: others ? ACCEPT_MS : RESUME_WINDOW_MS,
    bodyLength: intake.body.kind === 'kept' ? intake.body.bytes.length : intake.body.length,
  };
}

const decoder = new TextDecoder();

function bodyOf({ body }: Intake): AttemptBody {
  if (body.kind === 'kept') return body.bytes;
  return body.opaque.replayable ? body.opaque.open() : null;
}

export function isEventStream(head: AnswerHead): boolean {
  const type = head.headers.find(([name]) => name === 'content-type');
  return type?.[1].startsWith('text/event-stream') ?? false;
}

async function firstOf(attempt: Attempt): Promise<{ chunks: Uint8Array[]; complete: boolean }> {
  const first = await attempt.read();
  return { chunks: first ? [first] : [], complete: first === undefined };
}

/** The whole answer if it ends within `max` bytes; else what has come so far, `complete` false. */
async function readUpTo(attempt: Attempt, max: number): Promise<{ chunks: Uint8Array[]; complete: boolean }> {
  const chunks: Uint8Array[] = [];
  for (let bytes = 0; bytes <= max; ) {
    const chunk = await attempt.read();
    if (chunk === undefined) return { chunks, complete: true };
    chunks.push(chunk);
    bytes += chunk.length;
  }
  return { chunks, complete: false };
}

export function noCapacity(model: string): ApiError {
  return new ApiError('no_capacity', `No node that may be asked serves '${model}' at this moment; try again shortly.`);
}

/** What a client is told when the last attempt failed on its way. */
export function errorFor(failure: PathError): ApiError {
  const options = { cause: failure };
  switch (failure.code) {
    case 'first_byte_timeout':
      return new ApiError('upstream_timeout', 'The engine did not begin to answer in time.', options);
    case 'stall_timeout':
      return new ApiError('upstream_timeout', 'The engine stopped in the middle of its answer.', options);
    case 'unreachable':
    case 'not_accepted':
      return new ApiError('no_capacity', 'No node that serves this model can be reached from here now.', options);
    case 'refused':
      return new ApiError('no_capacity', `The node that serves this model refuses: ${failure.message}.`, options);
    case 'overloaded':
      return new ApiError('server_is_overloaded', 'The node that serves this model is overloaded.', options);
    default:
      return new ApiError(
        'upstream_error',
        'The connection to the engine was lost before its answer was complete.',
        options,
      );
  }
}

import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { ATTEMPTS_MAX, castsSuspicion, isBusyStatus, mayTryAnother } from '../../shared/routing/attempts.ts';
import { type Candidate, candidateOf, candidatesFor, suspectedFor } from '../../shared/routing/candidates.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/limits.ts';
import type { Env } from '../env.ts';
import type { View } from '../registry/snapshot.ts';
import { askTunnel } from '../tunnel/ask.ts';
import type { AttemptBody, AttemptRequest } from '../tunnel/attempt.ts';
import { Answer, type Ask, PathError } from './answer.ts';
import type { Intake } from './body.ts';

/** An opening that is not acknowledged within this moves the request to another node, where there is one. */
const ACCEPT_MS = 1_000;

/** A unary answer up to this size goes out only when it is complete, so that a truncated one can be repeated elsewhere. */
const UNARY_HELD_BYTES = 1024 * 1024;

const DEFAULT_FIRST_BYTE_MS = 900_000;
const DEFAULT_STALL_MS = 120_000;

/** All that handing over needs of a request. */
export interface Errand {
  /**
   * Names the request's streams between gateway and agents; whoever knows it can claim an answer. So it is ours and random,
   * never the client's request id: two clients may send the same.
   */
  name: string;
  endpoint: Endpoint;
  intake: Intake;
  headers: HeaderList;
  receipt: string;
  view: View;
  /** Whose nodes may see it, on every attempt. */
  trust: Trust;
  env: Env;
  /** A node did not answer. */
  onSuspect(session: string): void;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

/** An answer that may go out: its head is the engine's, `chunks` were read already. */
export interface Delivery {
  answer: Answer;
  node: Candidate;
  attempts: number;
  chunks: Uint8Array[];
  complete: boolean;
  /** The complete answer, not read here: it goes on as it is. */
  whole?: BodyInit | null;
}

/**
 * Tries nodes until one answers; nothing has gone out to the client before this returns.
 * @throws ApiError when none did.
 */
export async function handOver(errand: Errand): Promise<Delivery> {
  const tried = new Set<string>();
  let failure: PathError | undefined;
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const choice = choose(errand, tried);
    if (choice === undefined) break;
    const { node, others } = choice;
    tried.add(node.session);
    const more = others && attempt < ATTEMPTS_MAX;
    try {
      const delivery = await tryNode(errand, node, attempt, more);
      if (!more || !isBusyStatus(delivery.answer.status)) return delivery;
      await delivery.answer.cancel();
    } catch (error) {
      if (!(error instanceof PathError)) throw error;
      failure = error;
      if (castsSuspicion(error.code)) errand.onSuspect(node.session);
      if (!mayTryAnother(error.code) || !replayable(errand)) break;
    }
  }
  throw failure === undefined ? noCapacity(errand.intake.model) : errorFor(failure);
}

function choose(errand: Errand, tried: ReadonlySet<string>): { node: Candidate; others: boolean } | undefined {
  const { model } = errand.intake;
  const nodes = errand.view.model(model);
  const ready = candidatesFor(nodes, tried, errand.trust);
  // A lost path often comes back within seconds (a deploy, a short cut): worth a wait when nobody else is there.
  const candidates = ready.length > 0 ? ready : suspectedFor(nodes, tried, errand.trust).filter(recent);
  const entry = candidates[Math.floor(Math.random() * candidates.length)];
  return entry && { node: candidateOf(entry, errand.view.nodes.live), others: candidates.length > 1 };
}

/** Suspected a moment ago: its agent may be reconnecting. */
function recent({ updated_at }: RegistryEntry): boolean {
  return Date.now() - Date.parse(updated_at) < RESUME_WINDOW_MS;
}

function replayable({ intake }: Errand): boolean {
  return intake.body.kind === 'kept' || intake.body.opaque.replayable;
}

async function tryNode(errand: Errand, node: Candidate, attempt: number, others: boolean): Promise<Delivery> {
  const ask = asker(errand, node, attempt, others ? ACCEPT_MS : RESUME_WINDOW_MS);
  const answer = await Answer.open(ask, errand.signal);
  try {
    if (answer.isEventStream) {
      const first = await answer.read();
      return { answer, node, attempts: attempt, chunks: first ? [first] : [], complete: first === undefined };
    }
    const whole = answer.whole;
    if (whole !== undefined) return { answer, node, attempts: attempt, chunks: [], complete: true, whole };
    return { answer, node, attempts: attempt, ...(await answer.readUpTo(UNARY_HELD_BYTES)) };
  } catch (error) {
    await answer.cancel();
    throw error;
  }
}

function asker(errand: Errand, node: Candidate, attempt: number, acceptMs: number): Ask {
  const { intake, endpoint } = errand;
  const timeouts = errand.view.settings.models[intake.model];
  const open: AttemptRequest = {
    requestId: errand.name,
    attempt,
    resume: false,
    answerOffset: 0,
    endpoint: endpoint.id,
    headers: errand.headers,
    edits: intake.edits.map((edit) => ({ ...edit, insert: decoder.decode(edit.insert) })),
    streaming: intake.streaming,
    dropUsage: intake.edits.length > 0,
    firstByteMs: timeouts?.first_byte_ms ?? DEFAULT_FIRST_BYTE_MS,
    stallMs: timeouts?.stall_ms ?? DEFAULT_STALL_MS,
    receipt: errand.receipt,
    acceptMs,
    bodyLength: intake.body.kind === 'kept' ? intake.body.bytes.length : intake.body.length,
  };
  const worker = { env: errand.env, signal: errand.signal };
  return (offset) => {
    const claim = offset !== undefined;
    const asked = claim ? { ...open, resume: true, answerOffset: offset, acceptMs: RESUME_WINDOW_MS } : open;
    return askTunnel(worker, node.session, asked, bodyFor(intake, claim));
  };
}

const decoder = new TextDecoder();

function bodyFor(intake: Intake, claim: boolean): AttemptBody {
  if (intake.body.kind === 'kept') return intake.body.bytes;
  if (claim || !intake.body.opaque.replayable) return null;
  return intake.body.opaque.open();
}

export function noCapacity(model: string): ApiError {
  return new ApiError('no_capacity', `No node serves '${model}' at this moment; try again shortly.`);
}

/** What a client is told when the last attempt failed on its way. */
export function errorFor(failure: PathError): ApiError {
  switch (failure.code) {
    case 'first_byte_timeout':
      return new ApiError('upstream_timeout', 'The engine did not begin to answer in time.', { cause: failure });
    case 'stall_timeout':
      return new ApiError('upstream_timeout', 'The engine stopped in the middle of its answer.', { cause: failure });
    case 'not_accepted':
    case 'refused':
      return new ApiError('no_capacity', 'The node that serves this model cannot be reached; try again shortly.', {
        cause: failure,
      });
    case 'overloaded':
      return new ApiError('server_is_overloaded', 'The node that serves this model is overloaded.', { cause: failure });
    default:
      return new ApiError('upstream_error', 'The connection to the engine was lost before its answer was complete.', {
        cause: failure,
      });
  }
}

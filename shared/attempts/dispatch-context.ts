import { type Edit, joinEdits, modelNameEdit } from '../openai/body-edits.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { realtimeModelHeader } from '../openai/realtime/realtime-model.ts';
import { reasoningBudgetEdits } from '../openai/reasoning-budget.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { AttemptRequest } from './attempt-request.ts';
import { type ParsedRequest, parseBody } from './parsed-request.ts';

const FIRST_BYTE_MS = 900_000;
const STALL_MS = 120_000;

/** The values that all attempts of one request share. */
export interface DispatchContext {
  /**
   * Names the request's streams between the caller and agents. Anyone who knows the name can claim an answer, so the
   * name is random. It is never the client's request id, because two clients may send the same id.
   */
  name: string;
  endpoint: Endpoint;
  parsed: ParsedRequest;
  headers: HeaderList;
  receipt: string;
  /** The model's time-outs in milliseconds, if it has any. */
  timeouts?: { first_byte_ms?: number | null; stall_ms?: number | null } | undefined;
}

/** Returns the context with another body, in the JSON form of its endpoint. */
export function withBody(context: DispatchContext, bytes: Uint8Array): DispatchContext {
  const known = parseBody(bytes, 'application/json', context.endpoint);
  return { ...context, parsed: { ...known, body: { kind: 'kept', bytes }, release: () => {} } };
}

/**
 * Fields of the OPEN frame that depend on the node. `model`: the name that the node uses, if it differs from the
 * body's.
 * `budget`: limit of reasoning tokens, if the engine accepts one.
 */
export function openFrameFields(
  context: DispatchContext,
  attempt: number,
  acceptMs: number,
  model = context.parsed.model,
  budget?: number,
): AttemptRequest {
  const { parsed, endpoint, timeouts } = context;
  return {
    requestId: context.name,
    attempt,
    resume: false,
    answerOffset: 0,
    endpoint: endpoint.id,
    headers: endpoint.webSocket === true ? [...context.headers, realtimeModelHeader(model)] : context.headers,
    edits: editsFor(parsed, model, budget).map((edit) => ({ ...edit, insert: decoder.decode(edit.insert) })),
    streaming: parsed.streaming,
    dropUsage: parsed.edits.length > 0,
    firstByteMs: timeouts?.first_byte_ms ?? FIRST_BYTE_MS,
    stallMs: timeouts?.stall_ms ?? STALL_MS,
    receipt: context.receipt,
    acceptMs,
    bodyLength: parsed.body.kind === 'kept' ? parsed.body.bytes.length : parsed.body.length,
  };
}

/** Edits with which the agent replaces the model's name in the body. The gateway sends the body unchanged. */
function editsFor(
  { model, modelAt, budgetAt, edits }: ParsedRequest,
  served: string,
  budget: number | undefined,
): Edit[] {
  const renamed = served === model || modelAt === undefined ? [] : [modelNameEdit(modelAt, served)];
  const limited = budget === undefined || budgetAt === undefined ? [] : reasoningBudgetEdits(budgetAt, budget);
  return renamed.length + limited.length === 0 ? edits : joinEdits(edits, renamed, limited);
}

const decoder = new TextDecoder();

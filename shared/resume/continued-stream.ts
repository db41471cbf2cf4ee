/** The state of a stream from which another node can continue it: unsealed events, or sealed frames. */
import type { DispatchTarget } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';

/**
 * Builds the request with which a node continues the stream.
 * @throws CannotContinueError if its engine cannot, AttemptError if the node is gone
 */
export type BuildContinuation<C extends DispatchTarget> = (choice: C, acceptMs: number) => Promise<DispatchContext>;

export interface ContinuedStream<C extends DispatchTarget> {
  /** The part of a piece that may be sent, in complete units. May set `fault`. */
  push(piece: Uint8Array): Uint8Array[];
  /** True if the stream is complete. */
  readonly done: boolean;
  /** True if something may be inserted between the bytes that were sent and those that follow. */
  readonly atBoundary: boolean;
  readonly ping: Uint8Array;
  /** Why no node could continue the stream now; undefined if one could. */
  readonly obstacle: string | undefined;
  /** Why this node's response is not read further. Treated like a break. */
  readonly fault: string | undefined;
  /** The engine's own error, for a client that gets no other response. */
  readonly withheld: Uint8Array | undefined;
  /** Bytes of memory that the stream holds, including the request. */
  readonly keptBytes: number;
  /** Forbids that any node continues the stream. */
  forbid(why: string): void;
  /** The rest of the stream, if the whole text of the response has arrived; otherwise undefined. */
  ending(): Uint8Array[] | undefined;
  /** Builds the continuation for one search for the next node. */
  continuation(): BuildContinuation<C>;
  /** Call before the response of the next node. Returns the bytes that inform the client. */
  continueAt(session: string, attempts: number): Uint8Array[];
}

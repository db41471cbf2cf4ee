/** What is remembered of a stream so that another node can continue it: unsealed events, or sealed frames. */
import type { DispatchTarget } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';

/**
 * Builds the request with which a node continues the stream.
 * @throws CannotContinueError if its engine cannot, AttemptError if the node is gone
 */
export type BuildContinuation<C extends DispatchTarget> = (choice: C, acceptMs: number) => Promise<DispatchContext>;

export interface ContinuedStream<C extends DispatchTarget> {
  /** Returns the part of a piece that may be sent, in complete events or frames. May set `fault`. */
  push(piece: Uint8Array): Uint8Array[];
  /** True if the stream is complete. */
  readonly done: boolean;
  /** True if a comment may be inserted after the bytes that were sent. */
  readonly atBoundary: boolean;
  readonly ping: Uint8Array;
  /** Why no node could continue the stream now; undefined if one could. */
  readonly obstacle: string | undefined;
  /** Why this node's response must not be read further. The caller treats this as a break of the stream. */
  readonly fault: string | undefined;
  /** The error that the engine itself sent. The client gets it if no other node continues the stream. */
  readonly withheld: Uint8Array | undefined;
  /** Bytes of memory that the stream holds, including the request. */
  readonly keptBytes: number;
  /** Forbids that any node continues the stream. */
  forbid(why: string): void;
  /** The rest of the stream, if the whole text of the response has arrived; otherwise undefined. */
  ending(): Uint8Array[] | undefined;
  /** Returns a function that builds the continuation, for one search for the next node. */
  continuation(): BuildContinuation<C>;
  /** Call before the response of the next node is read. Returns the bytes that inform the client of the change. */
  continueAt(session: string, attempts: number): Uint8Array[];
}

/** The state of a stream, as the node that continues it needs it: unsealed events, or sealed frames. */
import type { DispatchTarget } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';

/**
 * Builds the request with which a node continues. @throws Unfit if its engine cannot, AttemptError if the node is gone
 */
export type BuildContinuation<C extends DispatchTarget> = (choice: C, acceptMs: number) => Promise<DispatchContext>;

export interface ContinuedStream<C extends DispatchTarget> {
  /** The part of a piece that may be sent, in complete units. May set `fault`. */
  push(piece: Uint8Array): Uint8Array[];
  /** The stream is complete. */
  readonly done: boolean;
  /** Something may be inserted between what was sent and what follows. */
  readonly atBoundary: boolean;
  readonly ping: Uint8Array;
  /** Why no node could continue it now. */
  readonly obstacle: string | undefined;
  /** Why this node's answer is not read further; treated like a break. */
  readonly fault: string | undefined;
  /** The engine's own error, for a client that gets no other answer. */
  readonly withheld: Uint8Array | undefined;
  /** Bytes of memory that it holds, including the request. */
  readonly keptBytes: number;
  /** From now on no node may continue it. */
  forbid(why: string): void;
  /** The rest, if all of the answer's text is here; otherwise undefined. */
  ending(): Uint8Array[] | undefined;
  /** For one search for the next node. */
  continuation(): BuildContinuation<C>;
  /** That node's answer follows. Returns what to tell the client. */
  continueAt(session: string, attempts: number): Uint8Array[];
}

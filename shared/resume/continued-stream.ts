/** What a stream has given so far, as the node that continues it must know it: events in clear, or frames that are sealed. */
import type { Choice } from '../upstream/dispatch.ts';
import type { DispatchContext } from '../upstream/dispatch-context.ts';

/** Makes the request that a node is to go on with. @throws Unfit where its engine cannot, AttemptError where the node is gone */
export type Continuation<C extends Choice> = (choice: C, acceptMs: number) => Promise<DispatchContext>;

export interface ContinuedStream<C extends Choice> {
  /** What of a piece may go out, whole. `fault` may be set after it. */
  push(piece: Uint8Array): Uint8Array[];
  /** The stream is complete. */
  readonly done: boolean;
  /** Something else may be said between what went out and what follows. */
  readonly atBoundary: boolean;
  readonly ping: Uint8Array;
  /** Why no node could continue it now. */
  readonly obstacle: string | undefined;
  /** Why this node's answer is not read on: as good as broken off. */
  readonly fault: string | undefined;
  /** The engine's own word of that, for a client that gets no other answer. */
  readonly withheld: Uint8Array | undefined;
  /** Bytes of memory that it keeps, the request included. */
  readonly keptBytes: number;
  /** No node shall continue it from now on. */
  forbid(why: string): void;
  /** The rest, where all of the answer's text is there; else undefined. */
  ending(): Uint8Array[] | undefined;
  /** For one search of the next node. */
  continuation(): Continuation<C>;
  /** The node's answer follows. Returns what the client is told of that. */
  continueAt(session: string, attempts: number): Uint8Array[];
}

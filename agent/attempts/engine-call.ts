import type { Readable } from 'node:stream';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { OpenFrame, ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineTarget } from '../engine/engine-address.ts';

export interface EngineEvents {
  /** `sized`: the response has a length, and undici checks it against the body. */
  onHead(status: number, headers: HeaderList, sized: boolean): void;
  onData(chunk: Uint8Array): void;
  onEnd(): void;
  onError(code: ResetCode, message: string): void;
}

export interface EngineCall {
  pause(): void;
  resume(): void;
  abort(): void;
}

/** Sends requests to one engine. `length`: bytes of `content`; undefined: chunked. */
type SendToEngine = (
  open: OpenFrame,
  endpoint: Endpoint,
  content: Buffer | Readable,
  length: number | undefined,
  events: EngineEvents,
) => EngineCall;

export interface EngineConnection {
  readonly target: EngineTarget;
  /** Through both engines of a pair if there is one. */
  readonly call: SendToEngine;
  readonly send: SendToEngine;
  close(): Promise<void>;
}

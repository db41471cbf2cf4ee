import type { Readable } from 'node:stream';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { OpenFrame, ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineTarget } from '../engine/engine-address.ts';

export interface EngineEvents {
  /** @param sized true if the response has a content-length, which the HTTP client checks against the body */
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

/** Sends requests to one engine. @param length bytes of `content`; undefined: chunked */
type SendToEngine = (
  open: OpenFrame,
  endpoint: Endpoint,
  content: Buffer | Readable,
  length: number | undefined,
  events: EngineEvents,
) => EngineCall;

export interface EngineConnection {
  readonly target: EngineTarget;
  /** Sends a client's request. If the target is a disaggregated pair, both engines get it. */
  readonly call: SendToEngine;
  readonly send: SendToEngine;
  close(): Promise<void>;
}

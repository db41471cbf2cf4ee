/** The interface between request streams and the mesh's channels. */
import type { Frame } from '../../../shared/wire/frames.ts';
import type { Link } from '../../../shared/wire/link.ts';

/** Frames of request streams; the mesh handles all other frames of a channel. */
export type StreamFrame = Extract<Frame, { stream: number }> | Extract<Frame, { type: 'settled' | 'load' }>;

/** An open, authenticated channel to another agent. */
export interface RequestChannel {
  /** The session at the other end. */
  readonly session: string;
  /**
   * The peer's provider as this agent's issuer list names it: `name`, or `name@issuer` if another issuer admitted it.
   */
  readonly provider: string;
  readonly link: Link;
  /** True if this end dialed. Its streams have odd numbers, the other end's even ones (as in RFC 9113 §5.1.1). */
  readonly dialled: boolean;
  /** True after the channel has ended and `onChannelClosed` was called. */
  readonly closed: boolean;
}

/** How the request streams reach other agents. */
export interface ChannelSource {
  /** Returns the open channel to `session`, or opens one. Rejects if that fails; the session may still be healthy. */
  channelTo(session: string): Promise<RequestChannel>;
  /**
   * Call if `session` has a channel and does not answer. True if that channel was given up, so that another one may be
   * opened.
   */
  stalled?(session: string): boolean;
}

/**
 * The mesh calls these for each channel, in this order. `onFrame` throws WireError if the peer broke a rule; the
 * channel is then closed.
 */
export interface RequestChannelEvents {
  onChannel(channel: RequestChannel): void;
  onFrame(channel: RequestChannel, frame: StreamFrame): void;
  /** Called when all frames of a message were delivered. A small request then starts with its whole body. */
  onMessageEnd(channel: RequestChannel): void;
  onChannelClosed(channel: RequestChannel): void;
  /** True if either end has open streams with `session`. */
  isUsing?(session: string): boolean;
}

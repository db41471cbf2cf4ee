/** The interface between request streams and the mesh's channels. */
import type { Frame } from '../../../shared/wire/frames.ts';
import type { Link } from '../../../shared/wire/link.ts';

/** Frames of request streams; the mesh handles all other frames of a channel. */
export type StreamFrame = Extract<Frame, { stream: number }> | Extract<Frame, { type: 'settled' | 'load' }>;

/** An open, authenticated channel to another agent. */
export interface RequestChannel {
  /** Session at the other end. */
  readonly session: string;
  /** Its provider's id as listed here: `name`, or `name@issuer` if another issuer admitted it. */
  readonly provider: string;
  readonly link: Link;
  /** True if this end dialed: its streams have odd numbers, the other end's even ones (as in RFC 9113 §5.1.1). */
  readonly dialled: boolean;
  /** True if it has ended and `onChannelClosed` was called. */
  readonly closed: boolean;
}

/** How the request streams reach other agents. */
export interface ChannelSource {
  /**
   * Returns the open channel to `session`, otherwise opens a new one. Rejects if that fails; the session may still be
   * healthy.
   */
  channelTo(session: string): Promise<RequestChannel>;
  /** `session` has a channel and does not answer. True if that channel was given up and another one may be opened. */
  stalled?(session: string): boolean;
}

/**
 * The mesh calls these, in this order for each channel. `onFrame` throws WireError if the peer broke a rule; the
 * channel is then closed.
 */
export interface RequestChannelEvents {
  onChannel(channel: RequestChannel): void;
  onFrame(channel: RequestChannel, frame: StreamFrame): void;
  /** Every frame of a message was delivered, so a small request starts with its whole body. */
  onMessageEnd(channel: RequestChannel): void;
  onChannelClosed(channel: RequestChannel): void;
  /** True if streams of either end are open with `session`. */
  isUsing?(session: string): boolean;
}

/** What the request streams need of the mesh's channels, and what the mesh tells them. */
import type { Frame } from '../../../shared/wire/frames.ts';
import type { Link } from '../../../shared/wire/link.ts';

/** Frames of the streams that requests use; everything else on a channel is the mesh's own. */
export type StreamFrame = Extract<Frame, { stream: number }> | Extract<Frame, { type: 'settled' | 'load' }>;

/** An open, authenticated channel to another agent. */
export interface RequestChannel {
  /** Session at the other end. */
  readonly session: string;
  /** Its provider's id as lists here write it: `name`, or `name@issuer` where another issuer admitted it. */
  readonly provider: string;
  readonly link: Link;
  /** This end dialled: the streams that it opens have odd numbers, those of the other end even ones (as in RFC 9113 §5.1.1). */
  readonly dialled: boolean;
  /** It has ended, and `onChannelClosed` has been told. */
  readonly closed: boolean;
}

/** How the request streams reach other agents. */
export interface ChannelSource {
  /** The channel to `session`: the one there is, else a new one. Rejects when none can be had; the session may be well all the same. */
  channelTo(session: string): Promise<RequestChannel>;
  /** `session` has a channel and gives no sign of life. True where that channel was given up and another one may be had. */
  stalled?(session: string): boolean;
}

/**
 * The mesh calls these, in this order for each channel. `onFrame` throws WireError where the peer broke a rule: the channel is
 * closed then.
 */
export interface RequestChannelEvents {
  onChannel(channel: RequestChannel): void;
  onFrame(channel: RequestChannel, frame: StreamFrame): void;
  /** Every frame of a message was handed over: a small request starts with its whole body. */
  onMessageEnd(channel: RequestChannel): void;
  onChannelClosed(channel: RequestChannel): void;
  /** Streams of either end are open with `session`. */
  isUsing?(session: string): boolean;
}

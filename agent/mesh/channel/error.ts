/** Why there is no channel (any more). */
export type ChannelErrorCode =
  | 'unreachable' // no address took the connection
  | 'timeout' // the other end did not go on
  | 'stranger' // no preface of ours, or a ticket that is not good here
  | 'wrong_key' // the other end's key is not the one of its ticket, or it is another session than the one dialled
  | 'unsigned' // the other end is not of a release that this agent accepts
  | 'broken' // TLS failed or the connection ended in the middle
  | 'full'; // no room for another

export class ChannelError extends Error {
  override readonly name = 'ChannelError';
  readonly code: ChannelErrorCode;
  constructor(code: ChannelErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** What another's bytes made a library throw is that connection's end, never the process's. */
export function asChannelError(error: unknown): ChannelError {
  if (error instanceof ChannelError) return error;
  return new ChannelError('broken', error instanceof Error ? error.message : String(error), { cause: error });
}

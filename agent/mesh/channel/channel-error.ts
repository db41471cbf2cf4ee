import { errorText } from '../../../shared/text/error-text.ts';

/** Why a channel could not be opened, or was closed. */
export type ChannelErrorCode =
  | 'unreachable' // no address accepted the connection
  | 'timeout' // the other end did not continue
  | 'stranger' // no preface of this protocol, or a ticket that this agent does not accept
  | 'wrong_key' // the other end's key is not its ticket's, or it is not the session that was dialed
  | 'unsigned' // the other end does not run a release that this agent accepts
  | 'broken' // TLS failed, or the connection ended early
  | 'full'; // a limit is reached

export class ChannelError extends Error {
  override readonly name = 'ChannelError';
  readonly code: ChannelErrorCode;
  constructor(code: ChannelErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/**
 * Converts errors that libraries throw because of a peer's bytes. Such an error ends the peer's connection, never the
 * process.
 */
export function asChannelError(error: unknown): ChannelError {
  if (error instanceof ChannelError) return error;
  return new ChannelError('broken', errorText(error), { cause: error });
}

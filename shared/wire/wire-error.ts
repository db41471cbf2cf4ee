/**
 * A violation of the protocol by a peer. The socket is closed with code 4002 and the reason, and all of its streams
 * fail.
 */
type WireErrorCode = 'truncated' | 'too_large' | 'bad_frame' | 'bad_offset' | 'over_credit' | 'too_many' | 'bad_state';

export class WireError extends Error {
  override readonly name = 'WireError';
  readonly code: WireErrorCode;
  constructor(code: WireErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Why a request was not sealed, or why its response is not trusted. The fetch rejects with a SealClientError; SDKs show
 * it as the cause of a failed connection.
 */
export type SealClientErrorCode =
  /** Requests of this kind cannot be sealed. The request was not sent. */
  | 'not_sealable'
  /**
   * The gateway's name of the model differs from the requested one, and the caller does not allow aliases. The request
   * was not sent.
   */
  | 'alias'
  /** No node that the pins allow serves the model. The request was not sent. */
  | 'no_candidate'
  /** The gateway has no discovery route, or its response is invalid. The request was not sent. */
  | 'no_discovery'
  /** A successful response in clear text: no node sealed it. */
  | 'plain_answer'
  /** The response was not sealed by a node of the request. */
  | 'not_opened'
  /** The response ended before its last chunk. */
  | 'cut'
  /** The gateway sent an error. No node signed it, so it may be false. */
  | 'gateway';

export class SealClientError extends Error {
  override readonly name = 'SealClientError';
  readonly code: SealClientErrorCode;

  constructor(code: SealClientErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/**
 * Why a request was not sealed, or its response is not trusted. A fetch rejects with it; SDKs show it as the cause of a
 * failed connection.
 */
export type SealClientErrorCode =
  /** A request of this kind cannot be sealed; it was not sent. */
  | 'not_sealable'
  /** The gateway reports another name of the model, and the caller does not allow aliases; it was not sent. */
  | 'alias'
  /** No node that the pins allow serves the model; it was not sent. */
  | 'no_candidate'
  /** The gateway has no discovery route, or its response is invalid; it was not sent. */
  | 'no_discovery'
  /** A success in clear: the gateway presents a response that no node sealed. */
  | 'plain_answer'
  /** The data was not sealed by a node of the request. */
  | 'not_opened'
  /** The response ended before its last chunk. */
  | 'cut'
  /** An unsigned statement of the gateway. */
  | 'gateway';

export class SealClientError extends Error {
  override readonly name = 'SealClientError';
  readonly code: SealClientErrorCode;

  constructor(code: SealClientErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

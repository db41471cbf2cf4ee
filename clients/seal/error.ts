/** Why a request was not sealed, or its answer is not believed. A fetch rejects with it; SDKs show it as a failed connection's cause. */
export type SealClientErrorCode =
  /** Nothing of this kind can be sealed; it was not sent. */
  | 'not_sealable'
  /** The gateway says that the model has another name, and the caller allows no aliases; it was not sent. */
  | 'alias'
  /** No node that the pins allow serves the model; it was not sent. */
  | 'no_candidate'
  /** The gateway has no discovery route, or answers nonsense; it was not sent. */
  | 'no_discovery'
  /** A success in clear: the gateway claims an answer that no node sealed. */
  | 'plain_answer'
  /** What came is not what a node sealed. */
  | 'not_opened'
  /** The answer ended before its last chunk. */
  | 'cut'
  /** The gateway's own word, that no one signed. */
  | 'gateway';

export class SealClientError extends Error {
  override readonly name = 'SealClientError';
  readonly code: SealClientErrorCode;

  constructor(code: SealClientErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

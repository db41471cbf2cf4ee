/** `pinned`: the provider's own root vouches for the key. `registry`: the gateway's word alone. */
export type SealMode = 'pinned' | 'registry';
/** Root keys by provider, base64url. */
export type Pins = Readonly<Record<string, string>>;
export interface SealNode {
  session: string;
  provider: string;
  mode: SealMode;
  kid: string;
  key: Uint8Array<ArrayBuffer>;
  until: number;
}
/** Tokens that the engine says inside a sealed answer. */
export interface SaidUsage {
  prompt: number | undefined;
  completion: number | undefined;
}
export interface SealOptions {
  pins?: Pins | undefined;
  candidates?: number;
  /** Believe the gateway about other names of models. Default false. */
  aliases?: boolean;
  /** Streams go on at another candidate where their node is lost; candidates can then read one another's answers. Default false. */
  resume?: boolean;
  fetch?: typeof globalThis.fetch | undefined;
  onAnswer?(node: SealNode): void;
  onUsage?(said: SaidUsage, answered: { node: SealNode; requestId: string | null }): void;
  now?(): number;
}
export type SealClientErrorCode =
  | 'not_sealable'
  | 'alias'
  | 'no_candidate'
  | 'no_discovery'
  | 'plain_answer'
  | 'not_opened'
  | 'cut'
  | 'gateway';
export declare class SealClientError extends Error {
  readonly code: SealClientErrorCode;
}
export declare const UNAUTHENTICATED_HEADER: 'x-otela-unauthenticated';
export declare function sealedFetch(options?: SealOptions): typeof globalThis.fetch;

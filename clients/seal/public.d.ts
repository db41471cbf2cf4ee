/**
 * `pinned`: the provider's root key vouches for the node's key. `registry`: only the gateway claims that the key
 * belongs to the node.
 */
export type SealMode = 'pinned' | 'registry';
/** Root keys in base64url, by provider. */
export type Pins = Readonly<Record<string, string>>;
export interface SealNode {
  session: string;
  provider: string;
  mode: SealMode;
  kid: string;
  key: Uint8Array<ArrayBuffer>;
  until: number;
  evidence?: readonly string[] | undefined;
}
/** A node's evidence about its machine. `reportData`: 64 bytes that the report must contain. */
export interface Evidence {
  node: SealNode;
  kinds: readonly string[];
  bytes: Uint8Array;
  reportData: Uint8Array;
}
export interface EvidenceVerifier {
  verify(evidence: Evidence): boolean | Promise<boolean>;
}
/** Token counts that the engine reports inside a sealed response. */
export interface SaidUsage {
  prompt: number | undefined;
  completion: number | undefined;
}
export interface SealOptions {
  pins?: Pins | undefined;
  candidates?: number;
  /** True to accept the gateway's claims about aliases of models. Default: false. */
  aliases?: boolean;
  /**
   * If the node of a stream is lost, another candidate continues the stream. The candidates can then read each other's
   * responses. Default: false.
   */
  resume?: boolean;
  /** Seals only to nodes whose evidence this verifier accepts. */
  verifier?: EvidenceVerifier | undefined;
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

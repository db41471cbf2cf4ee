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
  evidence?: readonly string[] | undefined;
}
/** What a node says of its machine. `reportData`: 64 bytes that its report must have been made over. */
export interface Evidence {
  node: SealNode;
  kinds: readonly string[];
  bytes: Uint8Array;
  reportData: Uint8Array;
}
export interface EvidenceVerifier {
  verify(evidence: Evidence): boolean | Promise<boolean>;
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
  /** Seal to nodes alone whose evidence it takes. */
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

export type { Pins, SealMode, SealNode } from './candidates.ts';
export { SealClientError, type SealClientErrorCode } from './error.ts';
export type { Evidence, EvidenceVerifier } from './evidence.ts';
export { type SealOptions, sealedFetch, UNAUTHENTICATED_HEADER } from './sealed-fetch.ts';
export type { SaidUsage } from './usage.ts';

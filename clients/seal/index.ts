export type { SaidUsage } from './answer-usage.ts';
export type { Evidence, EvidenceVerifier } from './evidence-verdicts.ts';
export type { Pins, SealMode, SealNode } from './pinned-candidates.ts';
export { SealClientError, type SealClientErrorCode } from './seal-client-error.ts';
export { type SealOptions, sealedFetch, UNAUTHENTICATED_HEADER } from './sealed-fetch.ts';

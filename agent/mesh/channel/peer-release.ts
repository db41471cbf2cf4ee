/**
 * How two agents show each other their release inside the encrypted channel. TLS has proven the peer's session key, so
 * the digest is a claim of that session; docs/trust.md explains how far to trust such a claim.
 */
import * as z from 'zod';
import type { Crypto } from '../../../shared/lattice/crypto-interface.ts';
import {
  checkRelease,
  MANIFEST_MAX_CHARS,
  type ReleaseRules,
  releaseSchema,
} from '../../../shared/release/release-manifest.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { ChannelError } from './channel-error.ts';

/**
 * Maximum size of a proof: JSON may double each character of the manifest, and the rest is a signature and a digest.
 */
export const PROOF_MAX_BYTES = 2 * MANIFEST_MAX_CHARS + 1024;

const proofSchema = releaseSchema.extend({ digest: z.string().max(64) });

/** The release that an agent shows: manifest, signature, and the SHA-256 of the running file in hex. */
export type ShownRelease = z.infer<typeof proofSchema>;

export interface PeerReleases {
  /** The release that is shown to peers that ask; undefined if this agent was not installed from a release. */
  own: ShownRelease | undefined;
  /** Releases that a peer must run; undefined: every peer with a valid ticket is accepted. */
  required: ReleaseRules | undefined;
}

/** Encodes the release to show. An empty message means that the agent was not installed from a release. */
export function encodeProof(own: ShownRelease | undefined): Uint8Array {
  if (own === undefined) return new Uint8Array();
  const { manifest, signature, digest } = own;
  return Buffer.from(JSON.stringify({ manifest, signature, digest }), 'utf8');
}

/** @throws ChannelError `unsigned` if the release does not satisfy the rules */
export function checkProof(bytes: Uint8Array, rules: ReleaseRules, crypto: Crypto): void {
  if (bytes.length === 0) throw new ChannelError('unsigned', 'the peer was not installed from a release');
  const shown = proofSchema.safeParse(tryParseJson(Buffer.from(bytes).toString('utf8')));
  if (!shown.success) throw new ChannelError('unsigned', "the peer's release cannot be read");
  const { manifest, signature, digest } = shown.data;
  const checked = checkRelease({ manifest, signature }, digest, rules, crypto);
  if (typeof checked === 'string') throw new ChannelError('unsigned', checked);
}

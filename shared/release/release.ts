/**
 * Which program an agent says it is: the manifest of a release, signed by whoever released it, and the agent's word for its own
 * digest under a challenge. docs/trust.md tells what that proves and what it cannot.
 */
import * as z from 'zod';
import { fromBase64url } from '../lattice/base64url.ts';
import { type Crypto, KEY_BYTES } from '../lattice/crypto.ts';

/** Kinds of machine that the agent is also made for as one file, which needs no Node: as Node names them. */
export const PLATFORMS = ['linux-x64', 'linux-arm64'] as const;
export type Platform = (typeof PLATFORMS)[number];

/** The agent within a release, in each of its forms. */
export const AGENT_FILES: readonly string[] = ['dist/otela-agent.js', ...PLATFORMS.map(singleFileName)];

export function singleFileName(platform: Platform): string {
  return `otela-agent-${platform}`;
}

export const MANIFEST_FILE = 'manifest.json';
export const SIGNATURE_FILE = 'manifest.sig';

/** A hundred files of 100 bytes. */
export const MANIFEST_MAX_CHARS = 32 * 1024;
const FILES_MAX = 256;

/** Releases that one gateway takes are signed by this many keys at most: a former one, and that of a fork. */
const RELEASE_KEYS_MAX = 16;

const digestSchema = z.string().regex(/^[0-9a-f]{64}$/);

export const manifestSchema = z.object({
  otela_release: z.literal(1),
  version: z.string().min(1).max(64),
  built_at: z.iso.datetime(),
  /** Paths within the release, with the SHA-256 of each. */
  files: z.array(z.object({ path: z.string().min(1).max(256), sha256: digestSchema })).max(FILES_MAX),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** What an agent brings of its release: the manifest as it was signed, byte for byte. */
export const releaseSchema = z.object({
  manifest: z.string().max(MANIFEST_MAX_CHARS),
  /** Of the release's key, base64url. */
  signature: z.string().max(128),
});
export type Release = z.infer<typeof releaseSchema>;

/** What it answers to a challenge. */
export const attestationSchema = z.object({
  challenge: z.string().min(1).max(512),
  /** SHA-256 of the program that runs, hex. */
  digest: digestSchema,
  /** Of the session's key, base64url. */
  signature: z.string().max(128),
});
export type Attestation = z.infer<typeof attestationSchema>;

const encoder = new TextEncoder();

/** What the release's key signs. */
export function releaseMessage(manifest: string): Uint8Array {
  return encoder.encode(`otela-release-1\n${manifest}`);
}

/** What the session's key signs: good for this challenge, this manifest and this digest alone, and by nobody else's key. */
export function attestationMessage(challenge: string, manifest: string, digest: string, crypto: Crypto): Uint8Array {
  return encoder.encode(
    `otela-attestation-1\n${challenge}\n${hex(crypto.sha256(encoder.encode(manifest)))}\n${digest}`,
  );
}

/** The manifest where one of `keys` signed it; else why not, as a clause. */
export function openRelease(
  { manifest, signature }: Release,
  keys: readonly Uint8Array[],
  crypto: Crypto,
): Manifest | string {
  const bytes = fromBase64url(signature, 64);
  const message = releaseMessage(manifest);
  const signed = bytes !== undefined && keys.some((key) => crypto.verify(key, message, bytes));
  if (!signed) return 'its manifest is not signed by a key that this gateway trusts with releases';
  const parsed = manifestSchema.safeParse(parseJson(manifest));
  return parsed.success ? parsed.data : 'its manifest cannot be read';
}

/** Whoever sets a switch wants it on: only the words for "no" are off. */
export function isOn(word: string | undefined): boolean {
  return !['', '0', 'off', 'no', 'false'].includes((word ?? '').trim().toLowerCase());
}

/** Keys as the environment lists them: base64url, between commas or spaces. Undefined where one of them is no key. */
export function readReleaseKeys(text: string | undefined): Uint8Array[] | undefined {
  const listed = (text ?? '').split(/[\s,]+/).filter((one) => one !== '');
  const keys = listed.map((one) => fromBase64url(one, KEY_BYTES)).filter((key) => key?.length === KEY_BYTES);
  if (listed.length > RELEASE_KEYS_MAX || keys.length < listed.length) return undefined;
  return keys.flatMap((key) => (key === undefined ? [] : [key]));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Which program an agent says it is: the manifest of a release, signed by its publisher, and the agent's word for its own
 * digest under a challenge. docs/trust.md tells what that proves and what it cannot.
 */
import * as z from 'zod';
import { fromBase64url } from '../lattice/base64url.ts';
import { hex } from '../lattice/bytes.ts';
import { type Crypto, KEY_BYTES } from '../lattice/crypto.ts';
import { jsonOf } from '../text/json.ts';

/** Kinds of machine that the agent is also made for as one file, which needs no Node: as Node names them. */
export const PLATFORMS = ['linux-x64', 'linux-arm64'] as const;
export type Platform = (typeof PLATFORMS)[number];

/** The agent within a release, in each of its forms. */
const AGENT_FILES: readonly string[] = ['dist/otela-agent.js', ...PLATFORMS.map(singleFileName)];

/**
 * The oldest agent that a gateway admits, and an agent accepts as a peer, unless its operator sets another. A release that
 * closes a hole raises it.
 */
export const OLDEST_VERSION = '0.1.0';

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

/** What the session's key signs: good for this challenge, this manifest and this digest alone, and by this key alone. */
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
  if (!signed) return 'its manifest is not signed by a trusted release key';
  const parsed = manifestSchema.safeParse(jsonOf(manifest));
  return parsed.success ? parsed.data : 'its manifest cannot be read';
}

/** Which releases are accepted. */
export interface ReleaseRules {
  /** Raw Ed25519 keys. A release has to be signed by one of them. */
  keys: readonly Uint8Array[];
  /** The oldest version, as `isVersion` takes it. */
  oldest: string;
}

/**
 * Checks a release and the digest that the running program says it has. Returns the manifest, or why the release is not
 * accepted, as a clause. The digest is that program's own word: see docs/trust.md.
 */
export function checkRelease(
  release: Release,
  digest: string,
  { keys, oldest }: ReleaseRules,
  crypto: Crypto,
): Manifest | string {
  const manifest = openRelease(release, keys, crypto);
  if (typeof manifest === 'string') return manifest;
  const version = manifest.version.slice(0, 64);
  if (isOlder(manifest.version, oldest))
    return `release ${version} is older than ${oldest}, the oldest that is accepted`;
  const known = manifest.files.some(({ path, sha256 }) => AGENT_FILES.includes(path) && sha256 === digest);
  return known ? manifest : `the program that runs is not the agent of release ${version}: its file was changed`;
}

/** `1.2.3` or `1.2.3-rc.1` (https://semver.org); numbers have six digits at most. */
export const VERSION = /^([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(-[A-Za-z0-9_.-]{1,32})?$/;

export function isVersion(text: string): boolean {
  return VERSION.test(text);
}

/** A version that cannot be read is older than any: an unknown version must not pass a floor. A pre-release comes before its release. */
export function isOlder(version: string, than: string): boolean {
  const [a, b] = [VERSION.exec(version), VERSION.exec(than)];
  if (a === null || b === null) return true;
  for (const part of [1, 2, 3]) {
    const difference = Number(a[part]) - Number(b[part]);
    if (difference !== 0) return difference < 0;
  }
  return a[4] !== undefined && b[4] === undefined;
}

/** A switch that is set is on: only the words for "no" are off. */
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

/**
 * Which program an agent claims to be. The claim consists of a release's manifest, signed by its publisher, and the
 * agent's own statement of its digest in response to a challenge. docs/trust.md says what this proves and what it
 * cannot prove.
 */
import * as z from 'zod';
import { fromBase64url } from '../lattice/base64url.ts';
import { hex } from '../lattice/byte-codec.ts';
import { type Crypto, KEY_BYTES } from '../lattice/crypto-interface.ts';
import { tryParseJson } from '../text/parse-json.ts';

/** Platforms for which the agent is also built as a single file that needs no Node. The names are Node's. */
export const PLATFORMS = ['linux-x64', 'linux-arm64'] as const;
export type Platform = (typeof PLATFORMS)[number];

/** The agent's files within a release, one for each of its forms. */
const AGENT_FILES: readonly string[] = ['dist/otela-agent.js', ...PLATFORMS.map(singleFileName)];

/**
 * The oldest version of an agent that a gateway admits and that other agents accept as a peer, unless their operators
 * set another version. A release that fixes a vulnerability raises it.
 */
export const OLDEST_VERSION = '0.1.0';

export function singleFileName(platform: Platform): string {
  return `otela-agent-${platform}`;
}

export const MANIFEST_FILE = 'manifest.json';
export const SIGNATURE_FILE = 'manifest.sig';

/** Maximum length of a manifest. A hundred files of 100 bytes each need a third of it. */
export const MANIFEST_MAX_CHARS = 32 * 1024;
const FILES_MAX = 256;

/** Maximum number of keys that may sign the releases that one gateway accepts, such as a former key or a fork's. */
const RELEASE_KEYS_MAX = 16;

const digestSchema = z.string().regex(/^[0-9a-f]{64}$/);

export const releaseManifestSchema = z.object({
  otela_release: z.literal(1),
  version: z.string().min(1).max(64),
  built_at: z.iso.datetime(),
  /** Paths within the release, each with its SHA-256. */
  files: z.array(z.object({ path: z.string().min(1).max(256), sha256: digestSchema })).max(FILES_MAX),
});
export type ReleaseManifest = z.infer<typeof releaseManifestSchema>;

/** An agent's copy of its release: the signed manifest, byte for byte. */
export const releaseSchema = z.object({
  manifest: z.string().max(MANIFEST_MAX_CHARS),
  /** Signature by the release's key, base64url. */
  signature: z.string().max(128),
});
export type Release = z.infer<typeof releaseSchema>;

/** The agent's response to a challenge. */
export const attestationSchema = z.object({
  challenge: z.string().min(1).max(512),
  /** SHA-256 of the running program in hex. */
  digest: digestSchema,
  /** Signature by the session's key, base64url. */
  signature: z.string().max(128),
});
export type Attestation = z.infer<typeof attestationSchema>;

const encoder = new TextEncoder();

/** The message that the release's key signs. */
export function releaseMessage(manifest: string): Uint8Array {
  return encoder.encode(`otela-release-1\n${manifest}`);
}

/**
 * The message that the session's key signs. The signature is valid only for this challenge, this manifest, this digest
 * and this key.
 */
export function attestationMessage(challenge: string, manifest: string, digest: string, crypto: Crypto): Uint8Array {
  return encoder.encode(
    `otela-attestation-1\n${challenge}\n${hex(crypto.sha256(encoder.encode(manifest)))}\n${digest}`,
  );
}

/** Returns the manifest if one of `keys` signed it. Otherwise returns the reason for refusing it, as a clause. */
export function openRelease(
  { manifest, signature }: Release,
  keys: readonly Uint8Array[],
  crypto: Crypto,
): ReleaseManifest | string {
  const bytes = fromBase64url(signature, 64);
  const message = releaseMessage(manifest);
  const signed = bytes !== undefined && keys.some((key) => crypto.verify(key, message, bytes));
  if (!signed) return 'its manifest is not signed by a trusted release key';
  const parsed = releaseManifestSchema.safeParse(tryParseJson(manifest));
  return parsed.success ? parsed.data : 'its manifest cannot be read';
}

/** Which releases are accepted. */
export interface ReleaseRules {
  /** Raw Ed25519 keys. A release must be signed by one of them. */
  keys: readonly Uint8Array[];
  /** The oldest accepted version, in the form that `isVersion` accepts. */
  oldest: string;
}

/**
 * Checks a release and the digest that the running program claims. Returns the manifest, or the reason why the release
 * is not accepted, as a clause. The digest is the program's own claim; see docs/trust.md.
 */
export function checkRelease(
  release: Release,
  digest: string,
  { keys, oldest }: ReleaseRules,
  crypto: Crypto,
): ReleaseManifest | string {
  const manifest = openRelease(release, keys, crypto);
  if (typeof manifest === 'string') return manifest;
  const version = manifest.version.slice(0, 64);
  if (isOlder(manifest.version, oldest))
    return `release ${version} is older than ${oldest}, the oldest accepted release`;
  const known = manifest.files.some(({ path, sha256 }) => AGENT_FILES.includes(path) && sha256 === digest);
  return known ? manifest : `the program that runs is not the agent of release ${version}: its file was changed`;
}

/** `1.2.3` or `1.2.3-rc.1` (https://semver.org); numbers have six digits at most. */
export const VERSION = /^([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(-[A-Za-z0-9_.-]{1,32})?$/;

export function isVersion(text: string): boolean {
  return VERSION.test(text);
}

/**
 * True if `version` is older than `than`. A version that cannot be parsed counts as older than any, so that it does not
 * satisfy a minimum. A pre-release is older than its release.
 */
export function isOlder(version: string, than: string): boolean {
  const [a, b] = [VERSION.exec(version), VERSION.exec(than)];
  if (a === null || b === null) return true;
  for (const part of [1, 2, 3]) {
    const difference = Number(a[part]) - Number(b[part]);
    if (difference !== 0) return difference < 0;
  }
  return a[4] !== undefined && b[4] === undefined;
}

/** True if an environment variable is set to any value other than the words that mean "no". */
export function isSwitchOn(word: string | undefined): boolean {
  return !['', '0', 'off', 'no', 'false'].includes((word ?? '').trim().toLowerCase());
}

/**
 * Reads keys from an environment variable: base64url, separated by commas or spaces. Undefined if one of them is
 * invalid.
 */
export function readReleaseKeys(text: string | undefined): Uint8Array[] | undefined {
  const listed = (text ?? '').split(/[\s,]+/).filter((one) => one !== '');
  const keys = listed.map((one) => fromBase64url(one, KEY_BYTES)).filter((key) => key?.length === KEY_BYTES);
  if (listed.length > RELEASE_KEYS_MAX || keys.length < listed.length) return undefined;
  return keys.flatMap((key) => (key === undefined ? [] : [key]));
}

/** Decides whether a joining agent must prove from which release it is, and checks the proof. */
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { SIGNATURE_BYTES } from '../../shared/lattice/crypto-interface.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import {
  type Attestation,
  attestationMessage,
  checkRelease,
  isOlder,
  isSwitchOn,
  isVersion,
  OLDEST_VERSION,
  openRelease,
  type Release,
  type ReleaseRules,
  readReleaseKeys,
} from '../../shared/release/release-manifest.ts';
import { decryptText, encryptText } from '../accounts/encrypt-text.ts';
import { installationSecret } from '../accounts/installation-secret.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';

/**
 * Maximum time from challenge to answer, which is one round trip, perhaps through a slow proxy. Only the gateway's
 * clock is used.
 */
const CHALLENGE_MS = 60_000;

type ReleaseEnv = Pick<Env, 'REQUIRE_SIGNED_AGENT' | 'RELEASE_KEYS' | 'OLDEST_AGENT'>;

/**
 * Returns what agents must prove at this gateway. `minimum`: the minimum version in the settings; if the environment
 * names a version too, the later of both applies. If a key in the list is malformed, the list counts as empty. If
 * agents must prove their release, none is then admitted, so that the operator notices the mistake.
 */
export function releaseRules(env: ReleaseEnv, minimum?: string): ReleaseRules & { required: boolean } {
  const set = env.OLDEST_AGENT?.trim() || OLDEST_VERSION;
  const oldest = minimum !== undefined && isOlder(set, minimum) && isVersion(set) ? minimum : set;
  return { required: isSwitchOn(env.REQUIRE_SIGNED_AGENT), keys: readReleaseKeys(env.RELEASE_KEYS) ?? [], oldest };
}

export interface ReleaseClaim {
  release: Release | undefined;
  attestation: Attestation | undefined;
}

/**
 * Undefined if the agent may proceed; otherwise the challenge that it must answer first. Nothing is stored: the
 * challenge is encrypted, contains the session key for which it was issued, and expires.
 * @throws ApiError 403 with the reason; 503 if D1 cannot be reached
 */
export async function requireRelease(
  env: ReleaseEnv & Pick<Env, 'DB'>,
  sessionKey: Uint8Array,
  publicKey: string,
  { release, attestation }: ReleaseClaim,
  { minimum, now }: { minimum: string | undefined; now: number },
): Promise<string | undefined> {
  const rules = releaseRules(env, minimum);
  if (!rules.required) return undefined;
  if (rules.keys.length === 0) throw refused('it has no release keys: its operator must set RELEASE_KEYS');
  if (!isVersion(rules.oldest))
    throw refused('its OLDEST_AGENT is not a version such as 0.2.0: its operator must set it');
  if (release === undefined)
    throw refused('this agent has no manifest: it runs from a clone of the repository, or its files were moved');
  // Checked before the challenge, so that a release that cannot pass needs no second request.
  const manifest = openRelease(release, rules.keys, workerdCrypto);
  if (typeof manifest === 'string') throw refused(manifest);
  const secret = await installationSecret(env);
  if (attestation === undefined)
    return encryptText(secret, 'attestation', JSON.stringify([publicKey, now + CHALLENGE_MS]));
  const { challenge, digest, signature } = attestation;
  await requireChallenge(secret, challenge, publicKey, now);
  const signed = fromBase64url(signature, SIGNATURE_BYTES) ?? new Uint8Array();
  const message = attestationMessage(challenge, release.manifest, digest, workerdCrypto);
  if (!workerdCrypto.verify(sessionKey, message, signed))
    throw refused("the agent's response is not signed by its session's key");
  const checked = checkRelease(release, digest, rules, workerdCrypto);
  if (typeof checked === 'string') throw refused(checked);
  return undefined;
}

async function requireChallenge(secret: string, challenge: string, publicKey: string, now: number): Promise<void> {
  const text = await decryptText(secret, 'attestation', challenge);
  if (text === undefined) throw refused('the agent answered a challenge that this gateway did not send');
  const [givenTo, until] = JSON.parse(text);
  if (givenTo !== publicKey) throw refused('the agent answered a challenge that was sent to another agent');
  if (!(now < until)) throw refused('the agent answered too late');
}

/**
 * Compares the agent's version with the setting `minimum_agent_version`. Without a signed release the version is only
 * the agent's claim.
 * @throws ApiError 403 with what to do
 */
export function requireVersion(version: string | undefined, minimum: string | undefined): void {
  if (minimum === undefined || (version !== undefined && !isOlder(version, minimum))) return;
  const theirs = version === undefined ? 'does not send its version' : `is ${version}`;
  throw new ApiError(
    'permission_denied',
    `This gateway admits agents from version ${minimum} on, but this agent ${theirs}: install a newer agent.`,
  );
}

function refused(why: string): ApiError {
  return new ApiError('permission_denied', `This gateway admits only agents of signed releases, and ${why}.`);
}

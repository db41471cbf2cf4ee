/**
 * The settings that operators set: environment variables on Node, `vars` and secrets on Cloudflare. env.ts says what
 * each means. The Node host refuses to start with a value that does not fit; on Cloudflare the request that needs
 * the value fails.
 */
import { isVersion, readReleaseKeys } from '../shared/release/release-manifest.ts';
import { CommandError } from './command-error.ts';
import type { Env } from './env.ts';
import { parseSecrets } from './platform/webhook-secrets.ts';

/**
 * Which requests get a line in the log: `all`, only failed ones (`error`: answered with 5xx, or broken off; a client
 * that disconnected is not a failure), or none (`off`).
 */
const REQUEST_LOGS = ['all', 'error', 'off'] as const;
export type RequestLogMode = (typeof REQUEST_LOGS)[number];

/** Returns what the value must be, or undefined if it fits. */
type Check = (text: string) => string | undefined;

const anyText: Check = () => undefined;
const wholeNumber: Check = (text) => (/^\d{1,15}$/.test(text) ? undefined : 'must be a whole number, without a unit');

/** An origin as browsers send it, without a path: `https://chat.example.org`, `vscode-webview://id`. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^\s,/?#@*A-Z]+$/;

/**
 * Reads `CORS_ORIGINS`, apart from `*`: origins separated by commas, or `off`. Undefined if an entry is not an origin.
 * `null` is refused: it is the origin of every page in a sandbox.
 */
export function readOrigins(text: string): string[] | undefined {
  if (text === 'off') return [];
  const origins = text.split(',').map((entry) => entry.trim());
  return origins.every((origin) => ORIGIN.test(origin)) ? origins : undefined;
}

const CHECKS = {
  BODY_BUDGET_BYTES: wholeNumber,
  BODY_LIMIT_BYTES: wholeNumber,
  BODY_STALL_MS: wholeNumber,
  BODY_UPLOADS_BYTES: wholeNumber,
  CORS_ORIGINS: (text) =>
    text === '*' || readOrigins(text) !== undefined
      ? undefined
      : 'must be *, off, or origins such as https://chat.example.org, separated by commas',
  REGISTRY_ACCESS: anyText,
  MESH_RELAY: anyText,
  DEFAULT_TRUST: anyText,
  GATEWAY_REGION: (text) => (text.length <= 64 ? undefined : 'must be a region of at most 64 characters'),
  OIDC_CLIENT_SECRETS: anyText,
  WEBHOOK_SECRETS: (text) =>
    parseSecrets(text) === undefined
      ? 'must be a JSON object of secrets by URL, each whsec_ and at least 24 bytes in base64'
      : undefined,
  SMTP_URL: (text) => {
    const { protocol, hostname = '' } = URL.parse(text) ?? {};
    const isSmtp = (protocol === 'smtp:' || protocol === 'smtps:') && hostname !== '';
    return isSmtp ? undefined : 'must be a URL such as smtps://user:password@mail.example.org';
  },
  USAGE_KEPT_DAYS: wholeNumber,
  USAGE_HELD_RECORDS: wholeNumber,
  REQUIRE_SIGNED_AGENT: anyText,
  RELEASE_KEYS: (text) => (readReleaseKeys(text) === undefined ? 'must be public keys in base64url' : undefined),
  OLDEST_AGENT: (text) => (isVersion(text) ? undefined : 'must be a version such as 0.2.0'),
  OTELA_METRICS_TOKEN: anyText,
  REQUEST_LOG: (text) =>
    REQUEST_LOGS.some((known) => known === text) ? undefined : `must be one of ${REQUEST_LOGS.join(', ')}`,
} satisfies Partial<Record<keyof Env, Check>>;

type EnvironmentName = keyof typeof CHECKS;
type NumberName = {
  [N in EnvironmentName]: N extends `${string}_${'BYTES' | 'MS' | 'DAYS' | 'RECORDS'}` ? N : never;
}[EnvironmentName];

export const ENVIRONMENT_NAMES = Object.keys(CHECKS) as EnvironmentName[];

/** A variable of the environment does not fit. */
class EnvironmentError extends CommandError {}

/** @throws EnvironmentError that names the first variable whose value does not fit; the value may be a secret */
export function checkEnvironment(environment: Readonly<Record<string, string | undefined>>): void {
  for (const name of ENVIRONMENT_NAMES) checkVariable(name, environment[name]);
}

/** A number that the environment sets; undefined if it is unset or empty. @throws EnvironmentError */
export function environmentNumber(env: Pick<Env, NumberName>, name: NumberName): number | undefined {
  const text = env[name]?.trim() ?? '';
  if (text === '') return undefined;
  checkVariable(name, text);
  return Number(text);
}

/** An empty value means unset, because Compose and Helm pass unset variables as empty ones. */
function checkVariable(name: EnvironmentName, value: string | undefined): void {
  const text = value?.trim() ?? '';
  const problem = text === '' ? undefined : CHECKS[name](text);
  if (problem !== undefined) throw new EnvironmentError(`The environment variable ${name} ${problem}.`);
}

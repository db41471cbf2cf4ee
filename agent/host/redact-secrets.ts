/** Removes secrets from text that leaves this machine: this agent's own secrets, and text that looks like a secret. */

type Env = Readonly<Record<string, string | undefined>>;

/** Minimum length of a secret. Shorter words occur in ordinary text. */
const SECRET_MIN = 8;
const NAMES = /(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$/i;
export const REDACTED = '[redacted]';

/**
 * Patterns of secrets: keys of this network, OpenAI, Hugging Face, GitHub, GitLab, AWS and Slack; bearer and basic
 * credentials; passwords in URLs; JSON Web Tokens; and `name=value` or `--name value` with a secret's name. Each
 * pattern takes time proportional to the text: engines print lines of a quarter of a MiB (a picture in base64), and the
 * end of a job does not wait.
 */
const SHAPES: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)/g, REDACTED],
  [/\b(sk|otj|otm|hf|ghp|gho|ghs|github_pat|glpat|xox[abp])[-_][A-Za-z0-9_-]{8,}/g, REDACTED],
  [/\bAKIA[0-9A-Z]{16}\b/g, REDACTED],
  [/(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, REDACTED],
  [/\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${REDACTED}`],
  [/(\w:\/\/[^\s:/@]{0,256}):[^\s/@]{1,256}@/g, `$1:${REDACTED}@`],
  // vLLM prints a key of its command line in the form `'api_key': ['…']`.
  [/((?:api[-_]?key|token|secret|password|passwd)["']?\s*[:=]\s*[[("']{0,3})[^\s"',;]{8,}/gi, `$1${REDACTED}`],
  [/(--[\w-]{0,32}(?:api[-_]key|token|secret|password|passwd)\s+["']?)[^\s"',;-][^\s"',;]{7,}/gi, `$1${REDACTED}`],
];

/**
 * @param secrets literal secrets
 * @param env environment; if a variable's name suggests a secret, its value is a secret too, unless it is a path
 */
export function redactor(secrets: readonly (string | undefined)[], env: Env): (text: string) => string {
  const named = Object.entries(env).flatMap(([name, value]) =>
    value !== undefined && NAMES.test(name) && !/^[~.]?\//.test(value) ? [value] : [],
  );
  const known = [...secrets, ...named].filter((one): one is string => one !== undefined && one.length >= SECRET_MIN);
  // The longest first, because one secret may be the beginning of another.
  const words = [...new Set(known)].sort((a, b) => b.length - a.length);
  return (text) => {
    let out = text;
    for (const word of words) out = out.replaceAll(word, REDACTED);
    for (const [shape, by] of SHAPES) out = out.replace(shape, by);
    return out;
  };
}

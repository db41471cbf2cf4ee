/** Names and values of secrets that functions get as environment variables. */

/**
 * The endings make sure that a secret replaces no variable with which the agent starts the process, such as
 * LD_LIBRARY_PATH.
 */
export const SECRET_NAME = /^[A-Z][A-Z0-9_]{0,54}_(TOKEN|KEY|SECRET|PASSWORD)$/;
export const SECRET_NAME_RULE =
  'must have capital letters, digits and _, and end with _TOKEN, _KEY, _SECRET or _PASSWORD, as HF_TOKEN';
export const SECRET_MAX_CHARS = 8_192;
/** Maximum secrets of one function. */
export const DECLARED_SECRETS_MAX = 16;

/** The secrets that a bundle of the Python client declares. The gateway checks nothing else of a bundle. */
export function declaredSecrets(bundle: unknown): string[] {
  const options = member(bundle, 'options');
  const names = member(options, 'secrets');
  if (!Array.isArray(names)) return [];
  const valid = names.filter((name): name is string => typeof name === 'string' && SECRET_NAME.test(name));
  return [...new Set(valid)].slice(0, DECLARED_SECRETS_MAX);
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

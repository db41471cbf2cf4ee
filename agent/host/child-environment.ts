/**
 * The environment for the engine and for tools of the host: the agent's environment without the agent's own variables,
 * in particular without tokens.
 */
export function childEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !name.startsWith('OTELA_')) kept[name] = value;
  }
  return kept;
}

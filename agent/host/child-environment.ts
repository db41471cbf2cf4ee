/** The environment of the engine and of the host's programs: ours without what is the agent's own, tokens above all. */
export function childEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !name.startsWith('OTELA_')) kept[name] = value;
  }
  return kept;
}

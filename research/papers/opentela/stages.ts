/** Parses `server-timing`, and computes medians. */

/** Names of the paper's Figure 5; `engine` is the engine's own time. */
export const STAGES = ['ingress', 'lookup', 'queue', 'forward', 'engine', 'return', 'other'] as const;

/** Milliseconds by stage. */
export function stagesOf(header: string): Record<string, number> {
  const said = header.matchAll(/([a-z]+);dur=([\d.]+)/g);
  return Object.fromEntries([...said].map(([, name = '', ms]) => [name, Number(ms)]));
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

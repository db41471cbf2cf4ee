/** Values in an engine's `/metrics`. Engines and the libraries between call one figure by several names. */

/** Larger ones are no counts of requests or tokens. */
const VALUE_MAX = 1e15;

/**
 * Lines of Prometheus text with one of `names`, each written as the engine does: `vllm:num_requests_running`. OpenTelemetry's exporters write an
 * underscore for the colon, and Ray puts `ray_` before the name.
 */
export function metricPattern(...names: readonly string[]): RegExp {
  const any = names.map((name) => name.replace(':', '[:_]')).join('|');
  return new RegExp(`^((?:ray_)?(?:${any}))(?:\\{.*\\})?[ \\t]+(\\S+)`, 'gm');
}

/** Of each engine behind one port. An engine that writes the figure under two names is read under the first. */
export function metricValues(text: string, pattern: RegExp): number[] {
  const found: number[] = [];
  let first: string | undefined;
  for (const [, name, written] of text.matchAll(pattern)) {
    const value = Number(written);
    first ??= name;
    if (name === first && value >= 0 && value < VALUE_MAX) found.push(value);
  }
  return found;
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}

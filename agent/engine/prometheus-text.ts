/**
 * Reads values from the Prometheus text of an engine's `/metrics`. Engines, and the libraries in between, use several
 * names for one value.
 */

/** Larger values cannot be counts of requests or tokens. */
const VALUE_MAX = 1e15;

/**
 * Matches lines of Prometheus text with one of `names`, given as the engine writes them, for example
 * `vllm:num_requests_running`. OpenTelemetry's exporters write an underscore for the colon, and Ray puts `ray_` before
 * the name.
 */
export function metricPattern(...names: readonly string[]): RegExp {
  const any = names.map((name) => name.replace(':', '[:_]')).join('|');
  return new RegExp(`^((?:ray_)?(?:${any}))(?:\\{.*\\})?[ \\t]+(\\S+)`, 'gm');
}

/**
 * The values of a metric, one for each engine behind the port. If an engine writes a value under two names, the first
 * name counts.
 */
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

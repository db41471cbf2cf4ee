/** The header's format: https://www.w3.org/TR/trace-context/#traceparent-header */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/;

/** The trace id of a valid header. Undefined for an invalid one, which must not be passed on. */
export function readTraceId(traceparent: string): string | undefined {
  const [, version, trace = '', parent, more] = TRACEPARENT.exec(traceparent) ?? [];
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined;
  return /^0+$/.test(trace) || /^0+$/.test(parent ?? '') ? undefined : trace;
}

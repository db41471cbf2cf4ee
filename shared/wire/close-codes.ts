/** Close codes of our WebSockets. docs/design/protocol.md says how an agent reacts to each. */
export const CLOSE_CODES = {
  replaced: 4001,
  protocol: 4002,
  resync: 4003,
  refused: 4004,
  silent: 4005,
  over: 4006,
} as const;

/** Maximum length of a close reason (RFC 6455 §5.5). If it is longer, `close` throws, and the socket stays open. */
const REASON_MAX_BYTES = 123;

/**
 * Cuts a close reason to its maximum length, after a whole character. A reason may contain text of any length that a
 * peer chose.
 */
export function closeReason(text: string): string {
  return text.slice(0, new TextEncoder().encodeInto(text, new Uint8Array(REASON_MAX_BYTES)).read);
}

/** Close codes of our WebSockets. docs/design/protocol.md has an agent's reaction to each. */
export const CLOSE_CODES = {
  replaced: 4001,
  protocol: 4002,
  resync: 4003,
  refused: 4004,
  silent: 4005,
  over: 4006,
} as const;

/** Maximum length of a close reason (RFC 6455 §5.5). `close` throws if it is longer, and the socket stays open. */
const REASON_MAX_BYTES = 123;

/** Cuts a close reason to its maximum length, after a whole character: a peer may have chosen a part of the text. */
export function closeReason(text: string): string {
  return text.slice(0, new TextEncoder().encodeInto(text, new Uint8Array(REASON_MAX_BYTES)).read);
}

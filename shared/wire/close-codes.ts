/** Close codes of our WebSockets. docs/design/protocol.md has an agent's reaction to each. */
export const CLOSE_CODES = {
  replaced: 4001,
  protocol: 4002,
  resync: 4003,
  refused: 4004,
  silent: 4005,
  over: 4006,
} as const;

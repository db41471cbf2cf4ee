/** Close codes of ours; what an agent does then is in docs/protocol.md. */
export const CLOSE = { replaced: 4001, protocol: 4002, resync: 4003, refused: 4004, silent: 4005, over: 4006 } as const;

/** Constants of the channels between agents. docs/design/protocol.md explains them. */

/** First bytes of a connection. Increase the number if an older agent could misread this one. */
export const PREFACE = 'otela-mesh-1\n';

/**
 * First bytes of a connection that carries weights. It is a separate socket, so that bulk data does not delay tokens.
 * Same length as PREFACE.
 */
export const WEIGHTS_PREFACE = 'otela-blob-1\n';

/**
 * First bytes of a connection through a relay on which two agents agree when to open a direct path. Same length as
 * PREFACE.
 */
export const PUNCH_PREFACE = 'otela-hole-1\n';

/** Maximum size of a ticket with its certificate, which have about 400 bytes. */
export const TICKET_MESSAGE_MAX_BYTES = 2 * 1024;

/**
 * Time limit of the dialing end, from the TCP connection to a ready channel. It adapts to the duration of earlier
 * handshakes.
 */
export const DIALLED_HANDSHAKE = { leastMs: 5_000, mostMs: 20_000 };

/**
 * Time limit of the listening end: the longest time that a dialer may take. A client that sends slowly on purpose holds
 * a socket for this long.
 */
export const HANDSHAKE_MS = DIALLED_HANDSHAKE.mostMs;

/**
 * Time limit of a TCP connection, counted from the attempt at the last of the peer's addresses. It is needed because a
 * firewall that drops packets sends no error.
 */
export const CONNECT_MS = 1_500;

/** Maximum number of addresses of one peer that are tried. */
export const ADDRESSES_MAX = 8;

/**
 * Credit of one channel, shared by all requests of one peer. It bounds the bytes that are held here for a peer that
 * does not read.
 */
export const CHANNEL_WINDOW_BYTES = 1024 * 1024;

/** Maximum size of one GOSSIP frame. */
export const GOSSIP_MAX_BYTES = 64 * 1024;

/**
 * If this many bytes wait in the socket, gossip messages are dropped (small ones only at twice as many). A later
 * message replaces a dropped one, and digests find the missing updates.
 */
export const GOSSIP_SKIP_BYTES = 256 * 1024;

/** If this many bytes wait in the socket, the peer does not read, and the channel is closed. */
export const BUFFERED_MAX_BYTES = 2 * 1024 * 1024;

/** Gossip bytes that a peer may send per second, on average. The full state of 1,000 nodes has about 470 KB. */
export const GOSSIP_BYTES_PER_S = 1024 * 1024;
export const GOSSIP_BURST_BYTES = 8 * 1024 * 1024;

/**
 * Gossip frames that a peer may send per second, on average. The bytes alone do not bound the work, because small
 * frames cost time, too. Four per update and peer are usual.
 */
export const GOSSIP_FRAMES_PER_S = 2_000;
export const GOSSIP_BURST_FRAMES = 10_000;

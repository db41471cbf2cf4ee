/** Constants of the channels between agents. docs/design/protocol.md explains them. */

/** First bytes of a connection. Increase its number if an older agent could misread this one. */
export const PREFACE = 'otela-mesh-1\n';

/**
 * The same for a connection that carries weights, on a separate socket so that bulk data does not delay tokens. Same
 * length.
 */
export const WEIGHTS_PREFACE = 'otela-blob-1\n';

/** A ticket carries its certificate; together they are about 400 bytes. */
export const TICKET_MESSAGE_MAX_BYTES = 2 * 1024;

/** For the dialing end, time from the connection to a ready channel. It grows if handshakes took longer. */
export const DIALLED_HANDSHAKE = { leastMs: 5_000, mostMs: 20_000 };

/** For the listening end: as long as a dialer may wait. A slow-loris client holds a socket for this long. */
export const HANDSHAKE_MS = DIALLED_HANDSHAKE.mostMs;

/** Time for the last of a peer's addresses to accept the connection. A firewall that drops packets sends no answer. */
export const CONNECT_MS = 1_500;

/** Addresses of one peer that are tried, at most. */
export const ADDRESSES_MAX = 8;

/**
 * Credit of one channel, shared by all requests of one peer. It bounds the bytes held here for a peer that does not
 * read.
 */
export const CHANNEL_WINDOW_BYTES = 1024 * 1024;

/** Size of one GOSSIP frame. */
export const GOSSIP_MAX_BYTES = 64 * 1024;

/**
 * If this many bytes wait in the socket, gossip is dropped. A newer message supersedes it, and digests find the missing
 * updates.
 */
export const GOSSIP_SKIP_BYTES = 256 * 1024;

/** More waiting bytes than an honest reader leaves: the channel is closed. */
export const BUFFERED_MAX_BYTES = 2 * 1024 * 1024;

/** Gossip that a peer may send; a full state of 1,000 nodes is about 470 KB. */
export const GOSSIP_BYTES_PER_S = 1024 * 1024;
export const GOSSIP_BURST_BYTES = 8 * 1024 * 1024;

/** Gossip frames that a peer may send, because small frames cost time too. Four per update and peer are usual. */
export const GOSSIP_FRAMES_PER_S = 2_000;
export const GOSSIP_BURST_FRAMES = 10_000;

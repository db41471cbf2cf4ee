/** Constants of the channels between agents; docs/design/protocol.md explains them. */

/** First bytes of a connection; grows its number when an older agent could misread us. */
export const PREFACE = 'otela-mesh-1\n';

/** The same for a connection that carries weights: bulk on a socket of its own does not stand before a token. Equally long. */
export const WEIGHTS_PREFACE = 'otela-blob-1\n';

/** A ticket carries its certificate and is some 400 bytes. */
export const TICKET_MESSAGE_MAX_BYTES = 2 * 1024;

/** From the connection to a ready channel, for the end that dials: more where handshakes took longer. */
export const DIALLED_HANDSHAKE = { leastMs: 5_000, mostMs: 20_000 };

/** For the end that listens: as long as a dialler may wait. A slow-loris costs a socket for so long. */
export const HANDSHAKE_MS = DIALLED_HANDSHAKE.mostMs;

/** For the last of a peer's addresses to take the connection; a firewall that swallows packets answers nothing. */
export const CONNECT_MS = 1_500;

/** Addresses of one peer that are tried. */
export const ADDRESSES_MAX = 8;

/** Credit of one channel. All requests of one peer share it; what a peer that is not read can make us hold. */
export const CHANNEL_WINDOW_BYTES = 1024 * 1024;

/** One GOSSIP frame. */
export const GOSSIP_MAX_BYTES = 64 * 1024;

/** Gossip that waits here beside it is dropped: a newer one supersedes it, and digests find what is missing. */
export const GOSSIP_SKIP_BYTES = 256 * 1024;

/** More waiting bytes than any honest reader leaves: the channel is closed. */
export const BUFFERED_MAX_BYTES = 2 * 1024 * 1024;

/** What one peer may send of gossip: a full state of 1,000 nodes is some 470 KB. */
export const GOSSIP_BYTES_PER_S = 1024 * 1024;
export const GOSSIP_BURST_BYTES = 8 * 1024 * 1024;

/** Frames cost time, however small. Four per update and peer are usual. */
export const GOSSIP_FRAMES_PER_S = 2_000;
export const GOSSIP_BURST_FRAMES = 10_000;

/**
 * Constants of the protocol. Both ends assume the same values if they have the same PROTOCOL_VERSION.
 * docs/design/protocol.md explains them.
 */

/**
 * Version of the protocol. It is increased if an older peer could misread a newer one. It is checked at the WebSocket
 * upgrade, before any frame.
 */
export const PROTOCOL_VERSION = 2;

/**
 * Header with the highest frame type that an end reads. Each end sends its own value at the upgrade, and receives no
 * frame of a higher type. An end without the header reads types up to 24. So a frame type that older ends need not
 * understand can be added without a new version.
 */
export const FRAMES_HEADER = 'x-otela-frames';
export const FRAMES_READ = 28;

/** Type of RATE. An agent that reads RATE also obeys an order to drain; older agents do not. */
export const RATE_FRAME = 25;

/** Type of a REPORT with timings. */
export const TIMED_REPORT_FRAME = 26;

/** Type of CIRCUIT: a caller waits for this agent at the agent's gateway. */
export const CIRCUIT_FRAME = 27;

/**
 * An end that reads this number reads REPORT with audio and images. It does not stand for a frame type: flag 32 of a report announces
 * the two numbers, and an older end would read them as the next field.
 */
export const MEDIA_REPORTS = 28;

/** Initial credit of a stream in bytes. The opening, a prompt and its answer rarely need more than one window. */
export const STREAM_WINDOW_BYTES = 256 * 1024;

/**
 * Maximum window of a stream. It is reached if the stream is read as fast as it arrives. With 3 MiB in flight a stream
 * carries 75 MB/s at a round trip of 40 ms.
 */
export const STREAM_WINDOW_MAX_BYTES = 3 * 1024 * 1024;

/**
 * Maximum total growth of the windows of all streams of one socket: enough for one fast reader, or for several that
 * share it.
 */
export const WINDOW_POOL_BYTES = 3 * 1024 * 1024;

/** Credit of all streams of one socket together. It limits the bytes that this end buffers if a reader stops. */
export const SOCKET_WINDOW_BYTES = 4 * 1024 * 1024;

/** Minimum credit of a socket. A socket that opens while the memory budget is full is slow, but can still transfer. */
export const WINDOW_FLOOR_BYTES = 64 * 1024;

/** Largest payload of a DATA frame; small enough that streams of one socket alternate. */
export const DATA_MAX_BYTES = 64 * 1024;

/**
 * A message is finished when it has this size, so that all streams get their turn on the socket. workerd allows 32 MiB.
 */
export const MESSAGE_TARGET_BYTES = 256 * 1024;

/**
 * Maximum size of a message; a larger one closes the socket. Honest messages are smaller: they have at most the target
 * size, one frame and some control frames.
 */
export const MESSAGE_MAX_BYTES = 1024 * 1024;

/**
 * Number of acknowledged bytes that the sender nevertheless keeps. If an object granted credit for bytes and then died,
 * it may have lost some of these bytes, for example in the pipe between two isolates.
 */
export const RETAINED_TAIL_BYTES = 256 * 1024;

/**
 * Header of the gateway's response to a tunnel's upgrade: the tail that the agent keeps of each response, at most
 * RETAINED_TAIL_BYTES, which is the default.
 */
export const TAIL_HEADER = 'x-otela-retained-tail';

/**
 * The tail for a gateway that has all objects in one process. It grants credit for bytes that a client's socket has
 * accepted, so it never claims an earlier byte.
 */
export const LOCAL_TAIL_BYTES = 16 * 1024;

/** Milliseconds that an answer waits for a claim after its socket or its object was lost. */
export const RESUME_WINDOW_MS = 10_000;

/** Maximum size of a session's own record. A lattice update with all its parts is smaller. */
export const RECORD_FRAME_MAX_BYTES = 16 * 1024;

/** Maximum size of a string in a frame. */
export const TEXT_MAX_BYTES = 8 * 1024;
export const HEADERS_MAX = 32;
export const HEADER_NAME_MAX_BYTES = 128;
export const EDITS_MAX = 8;

/** Maximum size of a USAGE frame of 16 records. A record with a model name of 1,024 escaped characters has 7 KiB. */
export const USAGE_MAX_BYTES = 128 * 1024;

/**
 * Maximum number of blocks reported per prompt: 16,384 tokens. Two prompts with the same later block also have the same
 * reported blocks.
 */
export const BLOCKS_MAX = 1_024;
export const BLOCK_DIGEST_BYTES = 32;

/** Maximum size of a DEPLOY frame, which holds an order with its parameters. */
export const DEPLOY_MAX_BYTES = 16 * 1024;

/** Maximum size of a DEPLOYED frame: enough for 64 templates. */
export const DEPLOYED_MAX_BYTES = 128 * 1024;

/** Maximum size of an engine's last output that a gateway stores per session. */
export const LOG_TAIL_MAX_BYTES = 256 * 1024;

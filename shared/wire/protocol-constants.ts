/**
 * Constants of the protocol. Both ends assume the same values for one PROTOCOL_VERSION. docs/design/protocol.md explains them.
 */

/**
 * Version of the protocol. Increased when an older peer could misread a newer one. Checked at the upgrade, before any
 * frame.
 */
export const PROTOCOL_VERSION = 2;

/**
 * Header with the highest frame type that an end reads. Each end sends its own value at the upgrade and receives no
 * frame above it. An end without the header reads types up to 24. So frames that older ends need not understand can be
 * added without a new version.
 */
export const FRAMES_HEADER = 'x-otela-frames';
export const FRAMES_READ = 27;

/** Type of RATE. An agent that reads RATE also obeys an order to drain; older agents do not. */
export const RATE_FRAME = 25;

/** Type of a REPORT with timings. */
export const TIMED_REPORT_FRAME = 26;

/** Type of CIRCUIT: a caller waits for this agent at the agent's gateway. */
export const CIRCUIT_FRAME = 27;

/** Initial credit of a stream in bytes. The opening, a prompt and its answer rarely need more than one window. */
export const STREAM_WINDOW_BYTES = 256 * 1024;

/**
 * Maximum window of a stream that is read as fast as it arrives: 3 MiB in flight fill 75 MB/s at a round trip of 40 ms.
 */
export const STREAM_WINDOW_MAX_BYTES = 3 * 1024 * 1024;

/**
 * Total growth of the windows of all streams of one socket: enough for one fast reader, or for several that share it.
 */
export const WINDOW_POOL_BYTES = 3 * 1024 * 1024;

/** Credit of all streams of one socket together. It limits how much we buffer for a reader that stops. */
export const SOCKET_WINDOW_BYTES = 4 * 1024 * 1024;

/** Minimum credit of a socket. If the memory budget is full, a new socket is slow, but it does not stop. */
export const WINDOW_FLOOR_BYTES = 64 * 1024;

/** Largest payload of a DATA frame; small enough that streams of one socket alternate. */
export const DATA_MAX_BYTES = 64 * 1024;

/** A message is finished at this size, so that all streams get their turn on the socket. workerd allows 32 MiB. */
export const MESSAGE_TARGET_BYTES = 256 * 1024;

/**
 * No honest message is larger, because it has the target size plus one frame plus control frames. A larger one closes
 * the socket.
 */
export const MESSAGE_MAX_BYTES = 1024 * 1024;

/**
 * Acknowledged bytes that the sender nevertheless keeps. An object that died after granting credit may have lost some
 * of the bytes that it took, for example in the pipe between two isolates.
 */
export const RETAINED_TAIL_BYTES = 256 * 1024;

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
 * Maximum number of blocks reported per prompt, equal to 16,384 tokens. Prompts that share a later block also share all
 * of these.
 */
export const BLOCKS_MAX = 1_024;
export const BLOCK_DIGEST_BYTES = 32;

/** Maximum size of a DEPLOY frame: an order with its parameters. */
export const DEPLOY_MAX_BYTES = 16 * 1024;

/** Maximum size of a DEPLOYED frame: enough for 64 templates. */
export const DEPLOYED_MAX_BYTES = 128 * 1024;

/** Maximum size of an engine's last output that a gateway stores per session. */
export const LOG_TAIL_MAX_BYTES = 256 * 1024;

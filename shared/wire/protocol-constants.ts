/**
 * Constants of the protocol. Both ends assume the same values for one PROTOCOL_VERSION. docs/design/protocol.md explains them.
 */

/** Increases when an older peer could misread us. Checked at the upgrade, before any frame. */
export const PROTOCOL_VERSION = 2;

/**
 * The highest frame type that an end reads. Each end sends its own value in this header at the upgrade and receives no
 * frame above it. Without the header an end reads up to 24. So frames that older ends need not understand are added
 * without a new version.
 */
export const FRAMES_HEADER = 'x-otela-frames';
export const FRAMES_READ = 27;

/** An agent that reads RATE also obeys an order to drain. Older agents do not. */
export const RATE_FRAME = 25;

/** A REPORT with timings. */
export const TIMED_REPORT_FRAME = 26;

/** CIRCUIT: a caller waits for this agent at its gateway. */
export const CIRCUIT_FRAME = 27;

/** Initial credit of a stream. The opening, a prompt and its answer rarely need more than one window. */
export const STREAM_WINDOW_BYTES = 256 * 1024;

/**
 * Maximum window of a stream that is read as fast as it arrives: 3 MiB in flight fill 75 MB/s at a round trip of 40 ms.
 */
export const STREAM_WINDOW_MAX_BYTES = 3 * 1024 * 1024;

/** Total growth of the windows of all streams of one socket: one fast reader, or several that share it. */
export const WINDOW_POOL_BYTES = 3 * 1024 * 1024;

/** Credit of all streams of one socket together. If a peer stops reading, we buffer at most this much for it. */
export const SOCKET_WINDOW_BYTES = 4 * 1024 * 1024;

/** Minimum credit of a socket, so that a full budget slows a newcomer down but does not stop it. */
export const WINDOW_FLOOR_BYTES = 64 * 1024;

/** Largest DATA frame; small enough that streams of one socket alternate. */
export const DATA_MAX_BYTES = 64 * 1024;

/** A message is closed at this size. workerd allows 32 MiB; a fair share of the socket is less. */
export const MESSAGE_TARGET_BYTES = 256 * 1024;

/** No honest message is larger: a target plus one frame plus control frames. A larger one closes the socket. */
export const MESSAGE_MAX_BYTES = 1024 * 1024;

/**
 * Acknowledged bytes that the sender keeps nevertheless: an object that died after granting credit may have lost what
 * it pulled (the pipe between two isolates holds some of it).
 */
export const RETAINED_TAIL_BYTES = 256 * 1024;

/** How long an answer waits for a claim after its socket or its object was lost. */
export const RESUME_WINDOW_MS = 10_000;

/** A session's own record; a lattice update with all its parts is smaller. */
export const RECORD_FRAME_MAX_BYTES = 16 * 1024;

/** Strings inside frames. */
export const TEXT_MAX_BYTES = 8 * 1024;
export const HEADERS_MAX = 32;
export const HEADER_NAME_MAX_BYTES = 128;
export const EDITS_MAX = 8;

/** One USAGE frame: 16 records. A record with a model name of 1,024 escaped characters has 7 KiB. */
export const USAGE_MAX_BYTES = 128 * 1024;

/** Blocks reported per prompt: 16,384 tokens. Prompts that share a later block share all of these, too. */
export const BLOCKS_MAX = 1_024;
export const BLOCK_DIGEST_BYTES = 32;

/** One DEPLOY frame: an order with its parameters. */
export const DEPLOY_MAX_BYTES = 16 * 1024;

/** One DEPLOYED frame: room for 64 templates. */
export const DEPLOYED_MAX_BYTES = 128 * 1024;

/** The last output of an engine, stored by a gateway per session. */
export const LOG_TAIL_MAX_BYTES = 256 * 1024;

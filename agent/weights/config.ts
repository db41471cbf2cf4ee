/** The operator's settings of weights. */
export interface WeightsConfig {
  directory: string;
  /** Bytes that blobs may take. */
  limitBytes: number;
  /** Transfers to others at a time. */
  uploads: number;
  /** Bytes a second of all uploads together; undefined: no limit. */
  rate: number | undefined;
  /** Clusters beside the own one. */
  clusters: readonly string[];
}

export interface NodeWeightsConfig extends WeightsConfig {
  /** Here before the engine begins. */
  sources: readonly string[];
  /** The engine's packed environment or image. */
  environment: string | undefined;
}

export interface PullLimits {
  /** A node that sends less, over `slowAfterMs`, is left for another. */
  slowBytesPerS: number;
  slowAfterMs: number;
  /** A node that is told to wait reads the source after so long without a new byte; one that is given senders after four times that. */
  sourceAfterMs: number;
  /** After so long without a new byte the pull fails. */
  giveUpMs: number;
  /** Told to wait, it asks again after this. */
  waitMs: number;
  /** A node's pace over `tryAfterMs` at which the rest of a blob takes longer than `restMs` is compared with that of the source. */
  tryAfterMs: number;
  restMs: number;
  /** A source that has not listed its files by then hangs, as a shared file system may for hours. */
  listWithinMs: number;
}

export const PULL_LIMITS: PullLimits = {
  // Half a megabit: what is slower holds up the nodes below it, too.
  slowBytesPerS: 64 * 1024,
  slowAfterMs: 10_000,
  sourceAfterMs: 30_000,
  giveUpMs: 300_000,
  waitMs: 250,
  tryAfterMs: 60_000,
  // What takes so long is worth a few seconds of the source.
  restMs: 600_000,
  listWithinMs: 60_000,
};

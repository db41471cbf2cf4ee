/** The operator's settings for weights. */
export interface WeightsConfig {
  directory: string;
  /** Disk quota for blobs, in bytes. */
  limitBytes: number;
  /** Concurrent uploads. */
  uploads: number;
  /** Bytes a second of all uploads together; undefined: no limit. */
  rate: number | undefined;
  /** Clusters besides the own one. */
  clusters: readonly string[];
}

export interface NodeWeightsConfig extends WeightsConfig {
  /** Sources that are pulled before the engine starts. */
  sources: readonly string[];
  /** The engine's packed environment or image. */
  environment: string | undefined;
}

export interface PullLimits {
  /** A node that sends less than this over `slowAfterMs` is replaced by another. */
  slowBytesPerS: number;
  slowAfterMs: number;
  /**
   * A node that is told to wait reads the source after this time without a new byte; a node that is given senders,
   * after four times this.
   */
  sourceAfterMs: number;
  /** After this time without a new byte the pull fails. */
  giveUpMs: number;
  /** If told to wait, it asks again after this. */
  waitMs: number;
  /**
   * If at a node's rate over `tryAfterMs` the rest of a blob takes longer than `restMs`, the rate is compared with the
   * source's.
   */
  tryAfterMs: number;
  restMs: number;
  /** A source that has not listed its files by then hangs, as a shared file system may for hours. */
  listWithinMs: number;
}

export const PULL_LIMITS: PullLimits = {
  // Half a megabit: anything slower also delays the nodes after it.
  slowBytesPerS: 64 * 1024,
  slowAfterMs: 10_000,
  sourceAfterMs: 30_000,
  giveUpMs: 300_000,
  waitMs: 250,
  tryAfterMs: 60_000,
  // A rest this long justifies a few seconds of reading the source.
  restMs: 600_000,
  listWithinMs: 60_000,
};

/** The operator's settings for weights. */
export interface WeightsConfig {
  directory: string;
  /** Disk quota for blobs and unpacked environments, in bytes. */
  limitBytes: number;
  /** Maximum number of concurrent uploads. */
  uploads: number;
  /** Bytes per second of all uploads together; undefined: no limit. */
  rate: number | undefined;
  /** Names of allowed clusters, in addition to this node's. */
  clusters: readonly string[];
}

export interface NodeWeightsConfig extends WeightsConfig {
  /** Sources that are pulled before the engine starts. */
  sources: readonly string[];
  /** The engine's packed environment or image. */
  environment: string | undefined;
}

export interface PullLimits {
  /** If a node sends fewer bytes per second than this over `slowAfterMs`, the pull continues at another node. */
  slowBytesPerS: number;
  slowAfterMs: number;
  /**
   * If the coordinator answers `wait`, a pull reads the source after this time without a new byte. If the coordinator
   * names senders, the pull reads the source after four times this time without a new byte.
   */
  sourceAfterMs: number;
  /** After this time without a new byte the pull fails. */
  giveUpMs: number;
  /** If the coordinator answers `wait`, the pull asks again after this time. */
  waitMs: number;
  /**
   * If the rest of a blob would take longer than `restMs` at a node's rate, measured over at least `tryAfterMs`, that
   * rate is compared with the source's.
   */
  tryAfterMs: number;
  restMs: number;
  /** A source that has not listed its files within this time hangs, as a shared file system may for hours. */
  listWithinMs: number;
}

export const PULL_LIMITS: PullLimits = {
  // Half a megabit per second. Anything slower also delays the nodes that read from this one.
  slowBytesPerS: 64 * 1024,
  slowAfterMs: 10_000,
  sourceAfterMs: 30_000,
  giveUpMs: 300_000,
  waitMs: 250,
  tryAfterMs: 60_000,
  // A remaining time that justifies a few seconds of reading the source.
  restMs: 600_000,
  listWithinMs: 60_000,
};

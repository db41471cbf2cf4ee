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

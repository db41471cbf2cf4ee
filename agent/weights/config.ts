/** What a node was told about weights. */
export interface WeightsConfig {
  directory: string;
  /** Bytes that blobs may take. */
  limitBytes: number;
  /** Transfers to others at a time. */
  uploads: number;
  /** Of all of them together, bytes a second; undefined: as much as goes. */
  rate: number | undefined;
  /** Clusters beside the own one. */
  clusters: readonly string[];
}

export interface NodeWeightsConfig extends WeightsConfig {
  /** Here before the engine begins. */
  sources: readonly string[];
  /** What the engine runs in: a packed environment or an image. */
  environment: string | undefined;
}

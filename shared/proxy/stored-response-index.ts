/** What a host knows about responses that engines stored. */

export interface StoredResponse {
  /** The session of the node with the response, and the model that generated it. */
  session: string;
  model: string;
  /** True if the response's tokens were counted. */
  charged: boolean;
}

/**
 * Which node stored which response. A caller finds only the responses of its project, so that no id of another project
 * reaches an engine.
 */
export interface StoredResponses<C> {
  /** @throws ApiError 503 */
  find(caller: C, id: string): Promise<StoredResponse | undefined>;
  /** Keeps an id. If the id is known, the first entry stays, because a node could repeat another node's id. */
  add(caller: C, id: string, stored: StoredResponse): void;
  /** Says that the response's tokens were counted. */
  charged(caller: C, id: string): void;
  remove(caller: C, id: string): void;
}

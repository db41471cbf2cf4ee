/** What the checks need to know about a real engine. */

/** Tokens that the engine counted itself. */
export interface OwnCounts {
  prompt: number;
  completion: number;
}

export interface RealEngine {
  /** Name on the command line, and heading of its column in docs/engines.md. */
  name: string;
  version: string;
  /** The model's name in `/v1/models`. */
  model: string;
  /** The model's context in tokens. */
  context: number;
  /** Time until it answers, with its model in the page cache of a quiet machine. */
  readyMs: number;
  /** True for a server of audio: it has transcriptions instead of chats, and no `/v1/models`. */
  hears?: true;
  /** Installs it and makes its model, once. */
  install(): Promise<void>;
  command(port: number): Promise<{ argv: string[]; env: Record<string, string> }>;
  /** Called when its HTTP server answers, for engines that get their models by a call. */
  prepare?(url: string): Promise<void>;
  /** Fields that make a response long, in addition to max_tokens. */
  long: Record<string, unknown>;
  /** Facts that the agent must find, from only the URL. */
  facts: Record<string, unknown>;
  /** True if `/metrics` has the number of running requests. */
  reportsLoad: boolean;
  /**
   * Tokens of all requests since its start, or of `body` (a chat request), by the engine's own counters or tokenizer.
   * Undefined: it has neither.
   */
  ownCounts?: (url: string, body: object) => Promise<OwnCounts>;
  /** True if `ownCounts` grows with each request, rather than being about `body`. */
  countsGrow?: boolean;
  /** True if `ownCounts` omits the prompt's tokens that were in the engine's cache. */
  countsWithoutCached?: boolean;
}

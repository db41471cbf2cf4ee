/**
 * The address of the proxy relay: `--relay HOST:PORT`, or a file with it. The writer of the file may replace it while
 * the agent runs: `otela up` connects through another login node, or after the relay's port was taken.
 */
import { readBoundedFile } from '../../../node/bounded-file.ts';
import { parseAddress } from '../channel/dial-channel.ts';

const FILE_MAX_BYTES = 512;
/**
 * An address without a server. The agent retries until the file has an address. It is not a name, because on nodes without a
 * name server the answer would take seconds. Only root can listen at this port.
 */
const UNKNOWN = '127.0.0.1:1';

export const isRelayFile = (given: string): boolean => given.startsWith('/');

export class RelayLocation {
  readonly #given: string;
  #last: string;

  constructor(given: string) {
    this.#given = given;
    this.#last = isRelayFile(given) ? UNKNOWN : given;
  }

  /** The current address as `host:port`. If the file cannot be read, the last known one. */
  get address(): string {
    if (!isRelayFile(this.#given)) return this.#given;
    try {
      const text = readBoundedFile(this.#given, FILE_MAX_BYTES).trim();
      if (parseAddress(text) !== undefined) this.#last = text;
    } catch {
      // The file is being replaced, or its file system is not available.
    }
    return this.#last;
  }
}

/**
 * The membership settings as the registry object stores them: the object wakes without reading D1, and needs the
 * settings to decide which nodes are suspected.
 */
import { type FailureDetectionSettings, MEMBERSHIP_DEFAULTS, membershipSchema } from '../../shared/gossip/index.ts';
import type { RegistryMeta } from './registry-meta.ts';

const KEY = 'membership';

export class GossipTuning {
  readonly #meta: Pick<RegistryMeta, 'get' | 'set'>;
  #current: FailureDetectionSettings;

  constructor(meta: Pick<RegistryMeta, 'get' | 'set'>) {
    this.#meta = meta;
    this.#current = membershipSchema.safeParse(JSON.parse(meta.get(KEY) ?? '{}')).data ?? MEMBERSHIP_DEFAULTS;
  }

  get current(): FailureDetectionSettings {
    return this.#current;
  }

  /**
   * Stores the settings. Returns false if they did not change. If the disk is full, they are lost when the object
   * sleeps.
   */
  set(settings: FailureDetectionSettings, write: (work: () => void) => void): boolean {
    const text = JSON.stringify(settings);
    if (text === JSON.stringify(this.#current)) return false;
    this.#current = settings;
    write(() => this.#meta.set(KEY, text));
    return true;
  }
}

/** Returns the registry without the models that the catalog hides from a reader. */
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import type { ModelNodes, NodeIndex } from '../../../shared/routing/node-index.ts';
import type { ViewedNodes } from '../../../shared/routing/registry-view.ts';
import type { Account } from '../../accounts/account.ts';
import type { GatewaySettings } from '../../accounts/gateway-settings.ts';
import { hasAccess } from '../../accounts/model-access.ts';

interface Shown {
  tag: string;
  nodes: ViewedNodes;
}

/**
 * The successive views as `account` sees them; undefined: a request without a key. A provider's users see all models of
 * its nodes. If an entry did not change, the same object is returned again.
 */
export class VisibleRegistry {
  readonly #account: Account | undefined;
  #settings: GatewaySettings | undefined;
  #stripped = new WeakMap<RegistryEntry, RegistryEntry>();

  constructor(account: Account | undefined) {
    this.#account = account;
  }

  of(view: { tag: string; nodes: NodeIndex; settings: GatewaySettings }): Shown {
    const { settings, nodes, tag } = view;
    if (settings !== this.#settings) this.#stripped = new WeakMap();
    this.#settings = settings;
    const hidden = Object.keys(settings.catalogue).filter((model) => !hasAccess(settings, this.#account, model));
    if (hidden.length === 0) return view;
    return { tag, nodes: this.#without(nodes, new Set(hidden)) };
  }

  #without(nodes: NodeIndex, hidden: ReadonlySet<string>): ViewedNodes {
    const seen = (entry: RegistryEntry) => this.#strip(entry, hidden);
    return {
      live: nodes.live,
      get: (session) => {
        const entry = nodes.get(session);
        return entry && seen(entry);
      },
      *entries() {
        for (const entry of nodes.entries()) yield seen(entry);
      },
      *models(): Generator<[string, ModelNodes]> {
        for (const one of nodes.models()) if (!hidden.has(one[0])) yield one;
      },
    };
  }

  #strip(entry: RegistryEntry, hidden: ReadonlySet<string>): RegistryEntry {
    const { role, provider } = this.#account ?? {};
    if (role === 'provider' && provider === entry.provider) return entry;
    if (!entry.models.some(({ id }) => hidden.has(id))) return entry;
    const known = this.#stripped.get(entry);
    if (known !== undefined) return known;
    const stripped = { ...entry, models: entry.models.filter(({ id }) => !hidden.has(id)) };
    this.#stripped.set(entry, stripped);
    return stripped;
  }
}

import { RegistryChanges } from '../../../shared/routing/registry-changes.ts';
import type { RegistryFilter, RegistryViewName } from '../../../shared/routing/registry-view.ts';
import type { Account } from '../../accounts/account.ts';
import { isAccountStale } from '../../accounts/gateway-settings.ts';
import type { Env } from '../../env.ts';
import { HolderPlaces } from '../../http/holder-places.ts';
import { isolateSnapshot } from '../isolate-snapshot.ts';
import { VisibleRegistry } from './visible-registry.ts';

/** Interval at which an open stream checks the isolate's view for changes. This causes no request to the registry. */
const POLL_MS = 250;

/**
 * While a stream is open, the view is at most this old, so that a page shows within a second that a node joins or
 * leaves.
 */
const VIEW_MAX_AGE_MS = 500;

/** Open streams of one isolate. Each compares the whole view when it changes. */
const streams = new HolderPlaces({ of: 'registry streams', most: 1_024, mostPerHolder: 32 });
/** All readers without a key share the places of one holder. */
const NO_KEY = 'no key';

const encoder = new TextEncoder();

/** True if the reader's key or token has ended or was changed. */
function isOver(account: Account, now: number): boolean {
  return (
    (account.expiresAt ?? Number.POSITIVE_INFINITY) <= now || isAccountStale(isolateSnapshot.view.settings, account)
  );
}

/**
 * Sends a registry view as server-sent events (WHATWG HTML §9.2). The first is `snapshot` with the whole list. After
 * it, for nodes: `node` for each that changed, and `gone` for each that no longer matches the filter; for models and
 * providers: the whole list again. `withLoads`: also `load` with the engine load of each model, at most once a second.
 * The reader gets events of the isolate's view at its pace, so none are queued. The stream ends when the reader's key
 * ends or the account changes; if the reader reconnects, the account is looked up again.
 * @throws ApiError 429, 503
 */
export function watchRegistry(
  env: Env,
  name: RegistryViewName,
  filter: RegistryFilter,
  account: Account | undefined,
  withLoads: boolean,
): ReadableStream {
  const release = streams.take(account === undefined ? NO_KEY : (account.userId ?? account.keyId));
  const seen = new VisibleRegistry(account);
  const news = new RegistryChanges(() => seen.of(isolateSnapshot.view), name, filter, withLoads);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    release();
    if (timer !== undefined) clearTimeout(timer);
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (!over) {
          const now = Date.now();
          if (account !== undefined && isOver(account, now)) {
            end();
            return controller.close();
          }
          const delta = news.since(now);
          if (delta !== '') return controller.enqueue(encoder.encode(delta));
          await new Promise<void>((resolve) => {
            timer = setTimeout(resolve, POLL_MS);
          });
          if (!over) isolateSnapshot.refreshOlder(env, Date.now(), VIEW_MAX_AGE_MS);
        }
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}

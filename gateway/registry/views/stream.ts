import { ApiError } from '../../../shared/openai/errors.ts';
import { RegistryChanges } from '../../../shared/routing/registry-changes.ts';
import type { RegistryFilter, RegistryViewName } from '../../../shared/routing/registry-view.ts';
import type { Account } from '../../accounts/account.ts';
import { isAccountStale } from '../../accounts/settings.ts';
import type { Env } from '../../env.ts';
import { snapshotCache } from '../snapshot.ts';
import { VisibleRegistry } from './visible-registry.ts';

/** How often an open stream looks at the isolate's view. A look costs no question to the registry. */
const LOOK_MS = 250;

/** While a reader watches, the view is at most so old: a page shows a node come and go within a second. */
const ASK_MS = 500;

/** Open streams of one isolate; each compares the whole view when it changed. */
const STREAMS_MAX = 64;
let open = 0;

const encoder = new TextEncoder();

/** The reader's key or token has ended or was changed. */
function isOver(account: Account, now: number): boolean {
  return (account.expiresAt ?? Number.POSITIVE_INFINITY) <= now || isAccountStale(snapshotCache.view.settings, account);
}

/**
 * A registry view as server-sent events (WHATWG HTML §9.2): `snapshot` with the whole list first, then for nodes `node` for each
 * that changed and `gone` for each that no longer passes; for models and providers the list again. `withLoads`: beside them `load`
 * at most once a second, with what the engines of each model do. Served from the isolate's
 * view at the reader's pace: nothing queues up. Ends when the reader's key ends or anything about the account changes: a reader that
 * comes again is looked up again.
 * @throws ApiError 503 above 64 streams in this isolate.
 */
export function watchRegistry(
  env: Env,
  name: RegistryViewName,
  filter: RegistryFilter,
  account: Account | undefined,
  withLoads: boolean,
): ReadableStream {
  if (open >= STREAMS_MAX) throw new ApiError('server_is_overloaded', 'Too many registry streams are open here.');
  open++;
  const seen = new VisibleRegistry(account);
  const news = new RegistryChanges(() => seen.of(snapshotCache.view), name, filter, withLoads);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    open--;
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
          const said = news.since(now);
          if (said !== '') return controller.enqueue(encoder.encode(said));
          await new Promise<void>((resolve) => {
            timer = setTimeout(resolve, LOOK_MS);
          });
          if (!over) snapshotCache.refreshOlder(env, Date.now(), ASK_MS);
        }
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}

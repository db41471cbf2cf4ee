import { useVirtualizer } from '@tanstack/react-virtual';
import clsx from 'clsx';
import { type FormEvent, type Ref, useEffect, useMemo, useRef, useState } from 'react';
import { Link } from 'wouter';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { saveAsFile } from '../parts/download.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Failure } from '../ui/feedback.tsx';
import { Field, Input } from '../ui/field.tsx';
import { Download, Link as LinkIcon, MoreHorizontal, Pencil, Search, SquarePen, Trash2 } from '../ui/icons.ts';
import { Menu, MenuItem, MenuRule } from '../ui/menu.tsx';
import { useAction } from '../ui/use-action.ts';
import type { ConversationStore, Summary } from './conversation-store.ts';
import { asJson, asMarkdown, exportFileName } from './export-conversation.ts';
import { ShareDialog } from './share/share-dialog.tsx';

const texts = t.chat.list;

/** Height of a row, in pixels. */
const ROW_HEIGHT = 36;
const HEAD_HEIGHT = 32;
/** Pause in typing, in milliseconds, after which the store is searched. Without it each letter would cause a search. */
const SEARCH_AFTER_MS = 120;

interface ConversationListProps {
  store: ConversationStore;
  conversations: readonly Summary[];
  /** Id of the open conversation. */
  open: string | undefined;
  /** Begins a new conversation. */
  begin: () => void;
  rename: (id: string, title: string) => Promise<void>;
  remove: (id: string) => Promise<void>;
  search: Ref<HTMLInputElement>;
  /** True if the person may share conversations by a link. */
  shares: boolean;
}

/** Stored conversations, by day. A thousand are as fast as ten, because only the visible rows are rendered. */
export function ConversationList(props: ConversationListProps) {
  const { store, conversations, begin, search } = props;
  const [query, setQuery] = useState('');
  const found = useSearch(store, query);
  const shown = useMemo(
    () => (found === undefined ? conversations : conversations.filter(({ id }) => found.has(id))),
    [conversations, found],
  );
  return (
    <section aria-label={texts.title} className="mt-3 flex min-h-0 flex-1 flex-col border-line border-t pt-3">
      <div className="flex flex-col gap-2 px-2 pb-2">
        <Button size="small" className="justify-start!" onClick={begin}>
          <SquarePen className="size-4" aria-hidden />
          {t.chat.newChat}
        </Button>
        <label className="flex h-8 items-center gap-2 rounded-sm px-2.5 text-muted text-sm focus-within:bg-hover hover:bg-hover">
          <Search className="size-4 shrink-0" aria-hidden />
          <input
            ref={search}
            type="search"
            aria-label={texts.search}
            placeholder={texts.search}
            value={query}
            onChange={(event) => setQuery(event.currentTarget.value)}
            className="w-full min-w-0 bg-transparent text-ink outline-none placeholder:text-muted"
          />
        </label>
      </div>
      {shown.length === 0 ? (
        <p className="px-4 py-2 text-muted text-sm">{conversations.length === 0 ? texts.none : texts.notFound}</p>
      ) : (
        <Rows {...props} shown={shown} />
      )}
    </section>
  );
}

function useSearch(store: ConversationStore, query: string): Set<string> | undefined {
  const [found, setFound] = useState<Set<string>>();
  useEffect(() => {
    if (query.trim() === '') {
      setFound(undefined);
      return;
    }
    let isGone = false;
    const timer = setTimeout(async () => {
      const ids = await store.search(query);
      if (!isGone) setFound(ids);
    }, SEARCH_AFTER_MS);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [store, query]);
  return found;
}

type Row = { head: string } | Summary;

function grouped(conversations: readonly Summary[], now: Date): Row[] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const day = 86_400_000;
  const groupOf = (at: number) =>
    at >= midnight ? 'today' : at >= midnight - day ? 'yesterday' : at >= midnight - 6 * day ? 'week' : 'older';
  const rows: Row[] = [];
  let last: string | undefined;
  for (const one of conversations) {
    const group = groupOf(one.updatedAt);
    if (group !== last) rows.push({ head: texts.groups[group] });
    last = group;
    rows.push(one);
  }
  return rows;
}

function Rows({ shown, ...props }: ConversationListProps & { shown: readonly Summary[] }) {
  const rows = useMemo(() => grouped(shown, new Date()), [shown]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: (n) => (rows[n] !== undefined && 'head' in rows[n] ? HEAD_HEIGHT : ROW_HEIGHT),
    overscan: 8,
  });
  return (
    <div ref={scroller} className="min-h-0 flex-1 overflow-y-auto px-2 pb-2">
      <ul className="relative" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ key, index, start, size }) => {
          const row = rows[index];
          return (
            <li key={key} className="absolute inset-x-0" style={{ top: start, height: size }}>
              {row === undefined ? null : 'head' in row ? (
                <span className="flex h-full items-end px-2.5 pb-1 font-medium text-muted text-xs">{row.head}</span>
              ) : (
                <ConversationRow summary={row} {...props} />
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function ConversationRow({
  summary,
  store,
  open,
  rename,
  remove,
  shares,
}: ConversationListProps & { summary: Summary }) {
  const { id } = summary;
  const title = summary.title || texts.untitled;
  const [asked, setAsked] = useState<'rename' | 'delete' | 'share'>();
  const exportAs = async (kind: 'md' | 'json') => {
    const conversation = await store.get(id);
    if (conversation === undefined) return;
    if (kind === 'md') saveAsFile(`${exportFileName(title)}.md`, 'text/markdown', asMarkdown(conversation));
    else saveAsFile(`${exportFileName(title)}.json`, 'application/json', asJson(conversation));
  };
  const more = (
    <button
      type="button"
      aria-label={texts.more(title)}
      className="mr-1 flex size-7 shrink-0 items-center justify-center rounded-sm text-muted opacity-0 hover:text-ink focus-visible:opacity-100 group-hover:opacity-100 data-popup-open:opacity-100 pointer-coarse:opacity-100"
    >
      <MoreHorizontal className="size-4" aria-hidden />
    </button>
  );
  return (
    <div
      className={clsx(
        'group flex h-full items-center rounded-md text-sm hover:bg-hover',
        id === open && 'bg-hover font-medium',
      )}
    >
      <Link
        href={`/chat/${id}`}
        aria-current={id === open ? 'page' : undefined}
        className="min-w-0 flex-1 truncate px-2.5 py-1.5"
      >
        {title}
      </Link>
      <Menu trigger={more}>
        <MenuItem onClick={() => setAsked('rename')}>
          <Pencil aria-hidden />
          {texts.rename}
        </MenuItem>
        <MenuItem onClick={() => neverRejects(exportAs('md'))}>
          <Download aria-hidden />
          {texts.exportMarkdown}
        </MenuItem>
        <MenuItem onClick={() => neverRejects(exportAs('json'))}>
          <Download aria-hidden />
          {texts.exportJson}
        </MenuItem>
        {shares && (
          <MenuItem onClick={() => setAsked('share')}>
            <LinkIcon aria-hidden />
            {t.chat.share.button}
          </MenuItem>
        )}
        <MenuRule />
        <MenuItem danger onClick={() => setAsked('delete')}>
          <Trash2 aria-hidden />
          {texts.delete}
        </MenuItem>
      </Menu>
      {asked === 'share' && <ShareDialog read={() => store.get(id)} close={() => setAsked(undefined)} />}
      {asked === 'rename' && (
        <RenameDialog title={title} rename={(next) => rename(id, next)} close={() => setAsked(undefined)} />
      )}
      {asked === 'delete' && (
        <Confirm
          title={texts.deleteTitle(title)}
          action={texts.delete}
          act={() => remove(id)}
          close={() => setAsked(undefined)}
        >
          {texts.deleteFollows}
        </Confirm>
      )}
    </div>
  );
}

interface RenameDialogProps {
  title: string;
  rename: (title: string) => Promise<void>;
  close: () => void;
}

function RenameDialog({ title, rename, close }: RenameDialogProps) {
  const { act, error } = useAction(close);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    act(rename(String(new FormData(event.currentTarget).get('title') ?? '').trim()));
  };
  return (
    <Dialog title={texts.rename} size="small" close={close}>
      <form onSubmit={submit} className="flex flex-col gap-4">
        <Field label={texts.newTitle}>
          {(id) => <Input id={id} name="title" defaultValue={title} maxLength={200} required />}
        </Field>
        {error !== undefined && <Failure error={error} />}
        <div className="flex justify-end">
          <Button type="submit" kind="primary">
            {t.common.save}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

import { Dialog } from '@base-ui/react/dialog';
import clsx from 'clsx';
import { type ReactNode, useEffect, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { basePath } from '../api/base-path.ts';
import type { ConnectionStatus } from '../api/live-registry.ts';
import { Banner } from '../parts/banner.tsx';
import { useLive, useMe } from '../parts/session.tsx';
import { SidebarSlot, SidebarSlotProvider } from '../parts/sidebar-slot.tsx';
import { t } from '../texts/index.ts';
import { LANGUAGE_NAMES, LANGUAGES, type Language, language, rememberLanguage } from '../texts/language.ts';
import { IconButton } from '../ui/button.tsx';
import { ChevronsUpDown, LogOut, Menu as MenuIcon, X } from '../ui/icons.ts';
import { Menu, MenuChoice, MenuItem, MenuLink, MenuRule } from '../ui/menu.tsx';
import { chooseTheme, THEMES, useTheme } from '../ui/theme.ts';
import { useMedia } from '../ui/use-media.ts';
import { API_ICON as ApiIcon, type PageEntry } from './pages.ts';

interface ShellProps {
  pages: readonly PageEntry[];
  leave: () => void;
}

/** Tailwind's `md`. On a narrower screen a button opens the navigation. */
const WIDE = '(min-width: 48rem)';

/** The navigation next to the page, or above it on a phone. */
export function AppShell({ pages, leave, children }: ShellProps & { children: ReactNode }) {
  const wide = useMedia(WIDE);
  const page = useShownPage(pages);
  useEffect(() => {
    document.title = page === undefined ? 'OpenTela' : `${page.title} · OpenTela`;
  }, [page]);
  return (
    <SidebarSlotProvider>
      <div className="flex h-dvh flex-col md:flex-row">
        {wide ? (
          <header className="flex w-64 shrink-0 flex-col border-line border-r bg-sunken">
            <Skip />
            <Sidebar pages={pages} leave={leave} />
          </header>
        ) : (
          <TopBar pages={pages} leave={leave} />
        )}
        <div className="flex min-h-0 min-w-0 flex-1 flex-col">
          <Banner />
          <main id="main" tabIndex={-1} className="relative min-h-0 flex-1 overflow-y-auto outline-none">
            {children}
          </main>
        </div>
      </div>
    </SidebarSlotProvider>
  );
}

/** Lets keyboard users skip the navigation. */
function Skip() {
  return (
    <button
      type="button"
      className="fixed top-2 left-2 z-50 -translate-y-16 rounded-md bg-accent px-3 py-2 text-on-accent focus-visible:translate-y-0"
      onClick={() => document.getElementById('main')?.focus()}
    >
      {t.shell.skip}
    </button>
  );
}

function useShownPage(pages: readonly PageEntry[]): PageEntry | undefined {
  const [path] = useLocation();
  return pages.find((page) => path.split('/')[1] === page.path);
}

function TopBar(props: ShellProps) {
  const [open, setOpen] = useState(false);
  const [path] = useLocation();
  const [openAt, setOpenAt] = useState(path);
  // The page changed, so the menu closes.
  if (openAt !== path) {
    setOpenAt(path);
    setOpen(false);
  }
  return (
    <header className="flex h-12 shrink-0 items-center gap-2 border-line border-b bg-sunken px-2">
      <Skip />
      <Dialog.Root open={open} onOpenChange={setOpen}>
        <Dialog.Trigger render={<IconButton label={t.shell.menu} />}>
          <MenuIcon />
        </Dialog.Trigger>
        <Dialog.Portal>
          <Dialog.Backdrop className="fixed inset-0 z-30 bg-[#000]/45 transition-opacity data-ending-style:opacity-0 data-starting-style:opacity-0" />
          <Dialog.Popup
            aria-label={t.shell.menu}
            className="fixed inset-y-0 left-0 z-30 flex w-72 max-w-[85vw] flex-col bg-sunken shadow-raised outline-none transition-transform data-ending-style:-translate-x-full data-starting-style:-translate-x-full"
          >
            <Dialog.Close render={<IconButton label={t.common.close} className="absolute top-3 right-2" />}>
              <X />
            </Dialog.Close>
            <Sidebar {...props} />
          </Dialog.Popup>
        </Dialog.Portal>
      </Dialog.Root>
      <Mark />
      <strong className="min-w-0 flex-1 truncate font-semibold tracking-tight">OpenTela</strong>
      <ConnectionState />
    </header>
  );
}

function Sidebar({ pages, leave }: ShellProps) {
  const shown = useShownPage(pages);
  const groups = (['use', 'run'] as const).map((group) => ({
    group,
    of: pages.filter((page) => page.group === group),
  }));
  return (
    <>
      <div className="flex h-14 shrink-0 items-center gap-2.5 px-4">
        <Mark />
        <strong className="flex-1 font-semibold text-lg tracking-tight">OpenTela</strong>
      </div>
      <nav aria-label={t.shell.pages} className="flex shrink-0 flex-col gap-3 px-2">
        {groups
          .filter(({ of }) => of.length > 0)
          .map(({ group, of }) => (
            <div key={group} className="flex flex-col gap-0.5">
              {group !== 'use' && <span className="px-2.5 pb-1 font-medium text-muted text-xs">{t.groups[group]}</span>}
              {of.map(({ path, title, icon: Icon }) => (
                <Link
                  key={path}
                  href={`/${path}`}
                  aria-current={path === shown?.path ? 'page' : undefined}
                  className={clsx(
                    'flex h-9 items-center gap-2.5 rounded-md px-2.5 text-sm transition-colors',
                    path === shown?.path ? 'bg-hover font-medium text-ink' : 'text-muted hover:bg-hover hover:text-ink',
                  )}
                >
                  <Icon className="size-4 shrink-0" aria-hidden />
                  {title}
                </Link>
              ))}
            </div>
          ))}
      </nav>
      <SidebarSlot />
      <div className="shrink-0 border-line border-t p-2">
        <AccountMenu leave={leave} />
      </div>
    </>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 24 24" className="size-6 text-accent" aria-hidden="true">
      <circle cx="12" cy="12" r="3.2" fill="currentColor" />
      <g fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round">
        <path d="M12 5.2V2.5M12 21.5v-2.7M5.2 12H2.5M21.5 12h-2.7" />
        <circle cx="12" cy="12" r="6.8" strokeDasharray="7.2 3.48" strokeDashoffset="-1.74" />
      </g>
    </svg>
  );
}

function chooseLanguage(next: Language): void {
  rememberLanguage(next);
  location.reload();
}

const LANGUAGE_OPTIONS = LANGUAGES.map((value) => ({ value, label: LANGUAGE_NAMES[value] }));

function AccountMenu({ leave }: { leave: () => void }) {
  const me = useMe();
  const theme = useTheme();
  const name = me.name ?? t.shell.key;
  const trigger = (
    <button type="button" className="flex w-full items-center gap-2.5 rounded-md px-2 py-1.5 text-left hover:bg-hover">
      <span className="sr-only">{t.shell.account}</span>
      <span
        aria-hidden
        className="flex size-8 shrink-0 items-center justify-center rounded-full bg-accent-soft font-semibold text-accent text-sm uppercase"
      >
        {name.slice(0, 1)}
      </span>
      <span className="flex min-w-0 flex-1 flex-col leading-tight">
        <span className="truncate font-medium text-sm">{name}</span>
        <span className="who truncate text-muted text-xs">
          {t.shell.roles[me.role]} · <ConnectionWords />
        </span>
      </span>
      <ChevronsUpDown className="size-4 shrink-0 text-muted" aria-hidden />
    </button>
  );
  const options = THEMES.map((value) => ({ value, label: t.shell.themes[value] }));
  return (
    <Menu trigger={trigger} side="top">
      <MenuChoice label={t.shell.theme} value={theme} options={options} choose={chooseTheme} />
      <MenuRule />
      <MenuChoice label={t.shell.language} value={language} options={LANGUAGE_OPTIONS} choose={chooseLanguage} />
      <MenuRule />
      <MenuLink href={`${basePath}/docs`}>
        <ApiIcon aria-hidden />
        {t.shell.api}
      </MenuLink>
      <MenuRule />
      <MenuItem onClick={leave}>
        <LogOut aria-hidden />
        {t.shell.logOut}
      </MenuItem>
    </Menu>
  );
}

const LABELS: Readonly<Record<ConnectionStatus, string>> = {
  live: t.shell.live,
  lost: t.shell.lost,
  connecting: t.shell.connecting,
};

function ConnectionWords() {
  const { connection } = useLive();
  return (
    <span role="status" className={clsx(connection === 'lost' && 'text-bad')}>
      {LABELS[connection]}
    </span>
  );
}

/**
 * The state of the connection on a phone. It is shown only while the page is not connected, because space is scarce.
 */
function ConnectionState() {
  const { connection } = useLive();
  if (connection === 'live') return null;
  return (
    <span role="status" className="truncate text-bad text-xs">
      {LABELS[connection]}
    </span>
  );
}
